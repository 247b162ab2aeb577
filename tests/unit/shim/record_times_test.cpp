#include "shim/record_times.h"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

using namespace cachealloc::shim;

namespace {

CUevent event(std::uintptr_t n) {
    return reinterpret_cast<CUevent>(n << 6);
}

} // namespace

TEST_CASE("RecordTimes: before or after a free") {
    RecordTimes times;
    CHECK_FALSE(times.after(event(1), times.now())); // never recorded
    times.recording(event(1));
    const std::uint64_t free = times.now();
    CHECK_FALSE(times.after(event(1), free));
    times.recording(event(2));
    CHECK(times.after(event(2), free));
    CHECK_FALSE(times.after(event(1), free));
    times.recording(event(1));
    CHECK(times.after(event(1), free));
    CHECK_FALSE(times.after(event(1), times.now()));
}

TEST_CASE("RecordTimes: what is lost counts as before") {
    const auto times = std::make_unique<RecordTimes>();
    const std::uint64_t free = times->now();
    constexpr std::uintptr_t kEvents = 100'000;
    std::size_t after = 0;
    for (std::uintptr_t i = 1; i <= kEvents; ++i)
        times->recording(event(i));
    for (std::uintptr_t i = 1; i <= kEvents; ++i)
        after += times->after(event(i), free) ? 1 : 0;
    CHECK(after > 100);
    CHECK(after <= 2048);
}

TEST_CASE("RecordTimes: records at once never make an event later than it was") {
    const auto times = std::make_unique<RecordTimes>();
    constexpr std::uintptr_t kOld = 5000; // events recorded before the free, and never again
    for (std::uintptr_t i = 1; i <= kOld; ++i)
        times->recording(event(i));
    const std::uint64_t free = times->now();
    std::vector<std::thread> threads;
    for (std::uintptr_t t = 0; t < 4; ++t) {
        threads.emplace_back([&times, t] {
            for (std::uintptr_t i = 0; i < 20'000; ++i)
                times->recording(event(kOld + 1 + t * 20'000 + i));
        });
    }
    std::size_t wrong = 0;
    for (int round = 0; round < 20; ++round) {
        for (std::uintptr_t i = 1; i <= kOld; ++i)
            wrong += times->after(event(i), free) ? 1 : 0;
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}
