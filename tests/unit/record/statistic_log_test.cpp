#include "core/record/statistic_log.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/small_file.h"

#include <catch2/catch.hpp>

#include <barrier>
#include <string>
#include <thread>
#include <vector>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::SectionType;
using trace::StatisticRecord;

TEST_CASE("statistic log: a number is replaced, a new name added, until it is full", "[record]") {
    SmallFile small({{SectionType::statistics, sizeof(StatisticRecord), 4096, 0, 0}});
    StatisticLog log(small.space(0));
    CHECK(log.set("frees", 1, 10));
    CHECK(log.set("fences", 2, 20));
    CHECK(log.set("frees", 3, 30));
    CHECK(log.set(std::string(60, 'x'), 4, 40));
    CHECK(log.set(std::string(61, 'x'), 5, 50)); // the same once it is cut
    const View view(small.path());
    const auto records = [&] { return view.elements<StatisticRecord>(SectionType::statistics); };
    REQUIRE(records().size() == 3);
    CHECK(std::string(records()[0].name) == "frees");
    CHECK(records()[0].value == 3);
    CHECK(records()[0].time == 30);
    CHECK(records()[1].value == 2);
    CHECK(std::string(records()[2].name) == std::string(47, 'x'));
    CHECK(records()[2].value == 5);
    for (int i = 3; i < 64; ++i)
        CHECK(log.set("name " + std::to_string(i), 0, 0));
    CHECK_FALSE(log.set("one more", 0, 0));
    CHECK(log.set("fences", 9, 90));
    CHECK(records()[1].value == 9);
}

TEST_CASE("statistic log: threads that bring a name at once enter it once", "[record]") {
    SmallFile small({{SectionType::statistics, sizeof(StatisticRecord), 4096, 0, 0}});
    StatisticLog log(small.space(0));
    std::barrier together(4);
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([&] {
            together.arrive_and_wait();
            for (int i = 0; i < 50; ++i)
                log.set("name " + std::to_string(i), static_cast<std::uint64_t>(i), 0);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(View(small.path()).elements<StatisticRecord>(SectionType::statistics).size() == 50);
}
