#include "core/record/module_log.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/small_file.h"

#include <catch2/catch.hpp>

#include <barrier>
#include <set>
#include <thread>
#include <vector>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::ModuleRecord;
using trace::SectionType;

TEST_CASE("module log: records in order, until it is full", "[record]") {
    SmallFile small({{SectionType::modules, sizeof(ModuleRecord), 64 << 10, 8 << 10, 0}});
    ModuleLog log(small.file(), small.space(0));
    ModuleRecord record{};
    for (std::uint64_t i = 0; i < 64; ++i) {
        record.start = i;
        CHECK(log.append(record));
        CHECK(log.size() == i + 1);
    }
    CHECK_FALSE(log.append(record));
    const View view(small.path());
    const auto records = view.elements<ModuleRecord>(SectionType::modules);
    REQUIRE(records.size() == 64);
    for (std::uint64_t i = 0; i < 64; ++i)
        CHECK(records[i].start == i);
}

TEST_CASE("module log: of threads that append at once all records are there", "[record]") {
    SmallFile small({{SectionType::modules, sizeof(ModuleRecord), 1 << 20, 4 << 10, 0}});
    ModuleLog log(small.file(), small.space(0));
    std::barrier together(4);
    std::vector<std::thread> threads;
    for (std::uint64_t number = 0; number < 4; ++number) {
        threads.emplace_back([&, number] {
            together.arrive_and_wait();
            ModuleRecord record{};
            for (std::uint64_t i = 0; i < 250; ++i) {
                record.start = number * 1000 + i;
                record.end = ~record.start;
                log.append(record);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    std::set<std::uint64_t> starts;
    const View view(small.path());
    for (const auto& record : view.elements<ModuleRecord>(SectionType::modules)) {
        CHECK(record.end == ~record.start);
        starts.insert(record.start);
    }
    CHECK(starts.size() == 1000);
}
