#include "core/record/spin_lock.h"

#include <catch2/catch.hpp>

#include <thread>
#include <vector>

using namespace cachealloc;

TEST_CASE("spin lock: one holder at a time", "[record]") {
    SpinLock lock{};
    int count = 0; // not atomic on purpose
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 20000; ++round) {
                if (!lock.lock()) return;
                ++count;
                lock.unlock();
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(count == 4 * 20000);
}

TEST_CASE("spin lock: a holder that never comes back hangs nobody", "[record]") {
    SpinLock lock{};
    REQUIRE(lock.lock());
    CHECK_FALSE(lock.lock()); // waits its time
    for (int i = 0; i < 1'000'000; ++i) {
        if (lock.lock()) FAIL("a broken lock was taken"); // waits no more
    }
    lock.unlock(); // the holder comes back after all
    CHECK_FALSE(lock.lock());
}
