#include "core/record/thread_log.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/small_file.h"

#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <thread>

#include <pthread.h>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::SectionType;
using trace::ThreadRecord;

TEST_CASE("thread log: a number for each thread, never a second time", "[record]") {
    SmallFile small({{SectionType::threads, sizeof(ThreadRecord), 8192, 4096, 0}});
    ThreadLog log(small.file(), small.space(0));
    std::set<std::uint32_t> numbers;
    for (int i = 0; i < 128; ++i) {
        std::thread([&] {
            const std::uint32_t number = log.enter(5);
            CHECK(numbers.insert(number).second);
            CHECK(number != 0);
            log.set_end(number, 9);
        }).join();
    }
    CHECK(log.enter(5) == 0); // full
    log.refresh_name(0);
    log.set_end(0, 1);
    const View view(small.path());
    for (const ThreadRecord& record : view.elements<ThreadRecord>(SectionType::threads)) {
        CHECK(numbers.contains(record.number));
        CHECK(record.start == 5);
        CHECK(record.end == 9);
    }
}

TEST_CASE("thread log: a thread has its name as last seen, and runs until it ends", "[record]") {
    SmallFile small({{SectionType::threads, sizeof(ThreadRecord), 4096, 0, 0}});
    ThreadLog log(small.file(), small.space(0));
    const View view(small.path());
    const auto name = [&](std::uint32_t number) {
        return std::string(view.elements<ThreadRecord>(SectionType::threads)[number - 1].name);
    };
    std::uint32_t number = 0;
    std::thread([&] {
        pthread_setname_np(pthread_self(), "first");
        number = log.enter(1);
        CHECK(name(number) == "first");
        pthread_setname_np(pthread_self(), "fifteen letters");
        log.refresh_name(number);
        CHECK(name(number) == "fifteen letters");
        CHECK(log.runs(number));
    }).join();
    while (log.runs(number)) // join() returns a moment before the system forgets it
        std::this_thread::yield();
    CHECK(log.runs(log.enter(2)));
    CHECK(log.runs(0));
}
