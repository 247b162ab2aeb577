#include "core/record/trace_clock.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdint>
#include <thread>

using namespace cachealloc;
using trace::ClockKind;

TEST_CASE("trace clock: a thread's times never go back", "[record]") {
    for (const TraceClock clock : {TraceClock::choose(), TraceClock(ClockKind::nanoseconds)}) {
        std::uint64_t last = 0;
        for (int i = 0; i < 10000; ++i) {
            const std::uint64_t next = i % 2 == 0 ? clock.after_acquire() : clock.before_release();
            REQUIRE(next >= last);
            last = next;
        }
        CHECK(last != 0);
    }
}

TEST_CASE("trace clock: the order of times is the order of ownership", "[record]") {
    const TraceClock clock = TraceClock::choose();
    std::atomic<std::uint64_t> given{0}; // a time; 0: the second thread has taken the last one
    std::uint64_t earlier = 0;
    constexpr int kRounds = 20000;
    std::thread taker([&] {
        for (int i = 0; i < kRounds; ++i) {
            std::uint64_t time = 0;
            while ((time = given.load(std::memory_order_acquire)) == 0)
                std::this_thread::yield();
            if (clock.after_acquire() < time) ++earlier;
            given.store(0, std::memory_order_release);
        }
    });
    for (int i = 0; i < kRounds; ++i) {
        while (given.load(std::memory_order_acquire) != 0)
            std::this_thread::yield();
        given.store(clock.before_release(), std::memory_order_release);
    }
    taker.join();
    CHECK(earlier == 0);
}

TEST_CASE("trace clock: a pair is the same moment on both clocks", "[record]") {
    const TraceClock clock = TraceClock::choose();
    const std::uint64_t before = clock.after_acquire();
    const trace::ClockPair pair = clock.pair();
    CHECK(pair.ticks >= before);
    CHECK(pair.ticks <= clock.after_acquire());
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(pair.realtime_ns / 1'000'000'000 <= static_cast<std::uint64_t>(now.tv_sec));
    CHECK(pair.realtime_ns / 1'000'000'000 + 3600 > static_cast<std::uint64_t>(now.tv_sec));
}
