#include "core/pool/live_peaks.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

struct Fixture {
    std::unique_ptr<BlockArena> arena = std::make_unique<BlockArena>();
    std::unique_ptr<ExactCache> cache = std::make_unique<ExactCache>(*arena, kGiB);
    LivePeaks live{*cache};
};

/// What an amount is, for all three classes, as plain sums.
using Sums = std::array<LiveAmounts, kSizeClasses + 1>;

bool equal(const LiveAmounts& a, const LiveAmounts& b) {
    return a.blocks == b.blocks && a.bytes == b.bytes && a.active == b.active &&
           a.active_bytes == b.active_bytes && a.requested == b.requested;
}

void raise(Sums& peaks, const Sums& now) {
    for (std::size_t i = 0; i < now.size(); ++i) {
        peaks[i].blocks = std::max(peaks[i].blocks, now[i].blocks);
        peaks[i].bytes = std::max(peaks[i].bytes, now[i].bytes);
        peaks[i].active = std::max(peaks[i].active, now[i].active);
        peaks[i].active_bytes = std::max(peaks[i].active_bytes, now[i].active_bytes);
        peaks[i].requested = std::max(peaks[i].requested, now[i].requested);
    }
}

void add(Sums& now, const LivePeaks::Amount& block, std::int64_t live, std::int64_t active) {
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    const auto requested = bytes - static_cast<std::int64_t>(block.waste);
    for (const std::size_t i : {std::size_t{block.which}, std::size_t{kBothClasses}}) {
        now[i].blocks += live;
        now[i].bytes += live * bytes;
        now[i].active += active;
        now[i].active_bytes += active * bytes;
        now[i].requested += active * requested;
    }
}

} // namespace

TEST_CASE("LivePeaks: one thread's peaks are exact after every step") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Fixture f;
    ThreadCache& mine = f.cache->mine();
    // Sizes on both sides of the quantum; blocks that waste most of themselves, or nothing.
    const auto block_of = [&random] {
        LivePeaks::Amount block{};
        block.bytes = (1 + (random() >> (random() % 15 + 49))) * 512;
        block.which = size_class(is_small(block.bytes));
        block.waste = random() % 2 == 0 ? 0 : random() % 512;
        return block;
    };
    std::vector<LivePeaks::Amount> live;
    std::vector<LivePeaks::Amount> pending;
    Sums now{};
    Sums peaks{};
    for (int step = 0; step < 40000; ++step) {
        const std::uint64_t what = random() % 100;
        const std::uint64_t more = step / 5000 % 2 == 0 ? 52 : 45; // rises, then falls
        if (live.empty() || what < more) {
            live.push_back(block_of());
            f.live.took(mine, live.back());
            add(now, live.back(), 1, 1);
        } else if (!pending.empty() && what % 3 == 0) {
            std::swap(pending[random() % pending.size()], pending.back());
            f.live.settled(mine, pending.back());
            add(now, pending.back(), 0, -1);
            pending.pop_back();
        } else {
            std::swap(live[random() % live.size()], live.back());
            const bool settled = what % 2 == 0;
            f.live.gave(mine, live.back(), settled);
            add(now, live.back(), -1, settled ? -1 : 0);
            if (!settled) pending.push_back(live.back());
            live.pop_back();
        }
        raise(peaks, now);
        if (step % 64 != 0) continue; // nothing is brought up to date by being looked at
        for (const SizeClass which : {kSmallClass, kLargeClass, kBothClasses})
            REQUIRE(equal(f.live.peaks(which), peaks[which]));
    }
    const Sums told = f.live.update();
    for (const SizeClass which : {kSmallClass, kLargeClass, kBothClasses})
        CHECK(equal(told[which], now[which]));
}

TEST_CASE("LivePeaks: sums are exact over threads, peaks within their quanta") {
    constexpr int kThreadCount = 4;
    constexpr std::int64_t kEach = 20000;
    Fixture f;
    std::vector<std::thread> threads;
    ThreadCache& shared = f.cache->of_shared_threads();
    for (int t = 0; t < kThreadCount; ++t) {
        threads.emplace_back([&] {
            ThreadCache& mine = f.cache->mine();
            for (int i = 0; i < kEach; ++i) {
                f.live.took(mine, {kSmallClass, 4096, 96});
                if (i % 2 == 0) f.live.gave(mine, {kSmallClass, 4096, 96}, true);
                f.live.took(shared, {kLargeClass, 512, 0});
                if (i % 4 != 0) f.live.gave(shared, {kLargeClass, 512, 0}, true);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    const LiveAmounts high = f.live.peaks(kBothClasses); // before anybody looks
    const Sums now = f.live.update();
    const std::int64_t expected = kThreadCount * kEach * (4096 / 2 + 512 / 4);
    CHECK(now[kSmallClass].blocks == kThreadCount * kEach / 2);
    CHECK(now[kLargeClass].blocks == kThreadCount * kEach / 4);
    CHECK(now[kSmallClass].requested == kThreadCount * kEach / 2 * 4000);
    CHECK(now[kBothClasses].bytes == expected);
    // Every thread's own part only rises (by steps of one block), so the true peak is the end.
    const std::int64_t off = (kThreadCount + 1) * 4 * LivePeaks::kQuantum;
    CHECK(high.bytes <= expected + kThreadCount * 4608);
    CHECK(high.bytes >= expected - off);
    CHECK(f.live.peaks(kBothClasses).bytes >= expected);
}

TEST_CASE("LivePeaks: what one thread frees, another one does not take for room") {
    Fixture f;
    ThreadCache& mine = f.cache->mine();
    const LivePeaks::Amount block{kLargeClass, 64 * kMiB, 0};
    for (int i = 0; i < 16; ++i)
        f.live.took(mine, block);
    // The other thread frees everything, this one takes it again, and then the other one takes
    // more: its room is not what it once freed.
    std::thread([&] {
        ThreadCache& other = f.cache->mine();
        for (int i = 0; i < 16; ++i)
            f.live.gave(other, block, true);
        std::thread([&] {
            ThreadCache& third = f.cache->mine();
            for (int i = 0; i < 16; ++i)
                f.live.took(third, block);
        }).join();
        for (int i = 0; i < 16; ++i)
            f.live.took(other, block);
    }).join();
    CHECK(f.live.peaks(kBothClasses).bytes == std::int64_t{32 * 64} * (1 << 20));
}
