#include "core/pool/live_bytes.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using namespace cachealloc;

TEST_CASE("LiveBytes: one thread's peak is exact after every step") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto mine = std::make_unique<ThreadCache>();
    LiveBytes live;
    std::vector<std::uint64_t> held;
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (int step = 0; step < 50000; ++step) {
        if (held.empty() || random() % 100 < 52) {
            const std::uint64_t bytes = (1 + (random() >> (random() % 13 + 41))) * 512;
            live.add(*mine, bytes);
            held.push_back(bytes);
            now += static_cast<std::int64_t>(bytes);
        } else {
            const std::size_t at = random() % held.size();
            live.subtract(*mine, held[at]);
            now -= static_cast<std::int64_t>(held[at]);
            held[at] = held.back();
            held.pop_back();
        }
        peak = std::max(peak, now);
        REQUIRE(live.peak() == peak);
        REQUIRE(live.total() + mine->live_delta == now);
        REQUIRE(live.total() - now <= LiveBytes::kQuantum);
        REQUIRE(now - live.total() <= LiveBytes::kQuantum);
    }
}

TEST_CASE("LiveBytes: the sum is exact over threads, the peak within a quantum each") {
    constexpr int kThreadCount = 4;
    LiveBytes live;
    std::vector<std::unique_ptr<ThreadCache>> caches;
    for (int t = 0; t < kThreadCount; ++t)
        caches.push_back(std::make_unique<ThreadCache>());
    const auto shared = std::make_unique<ThreadCache>();
    shared->shared = true;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreadCount; ++t) {
        threads.emplace_back([&, t] {
            ThreadCache& mine = *caches[static_cast<std::size_t>(t)];
            for (int i = 0; i < 20000; ++i) {
                live.add(mine, 4096);
                if (i % 2 == 0) live.subtract(mine, 4096);
                live.add(*shared, 512);
                if (i % 4 != 0) live.subtract(*shared, 512);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    std::int64_t sum = live.total();
    for (const auto& cache : caches)
        sum += cache->live_delta;
    const std::int64_t expected = kThreadCount * (10000 * 4096 + 5000 * 512);
    CHECK(sum == expected);
    CHECK(shared->live_delta == 0);
    // Every thread's own part only rises (by steps of one block), so the true peak is the end.
    CHECK(live.peak() <= expected + kThreadCount * (LiveBytes::kQuantum + 4608));
    CHECK(live.peak() >= expected - kThreadCount * (LiveBytes::kQuantum + 4608));
}
