// What a pool may hold: the process's share of the device, the threshold above which it gives back,
// and what it gives back before it grows far beyond its live peak.
#include "core/device_pool.h"

#include "pool_fixture.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace cachealloc;

namespace {

Options with_share(std::uint32_t percent) {
    Options options = pool_options();
    options.per_process_memory_fraction = Fraction{Fraction::kOne / 100 * percent};
    return options;
}

} // namespace

TEST_CASE("DevicePool bounds: a process holds no more than its share") {
    PoolFixture f(OrderLevel::ordered, with_share(50), 64 * kMiB);
    Block* const first = f.alloc(20 * kMiB);
    Block* const second = f.alloc(12 * kMiB);
    REQUIRE(second != nullptr); // the limit itself
    const std::uint64_t asked = f.device.allocations;
    CHECK(f.alloc(2 * kMiB) == nullptr);
    CHECK(f.status == PoolStatus::over_limit);
    CHECK(f.device.allocations == asked); // the driver, which has room, was not asked
    CHECK(f.pool->statistics().out_of_memory == 1);
    f.free(first);
    CHECK(f.alloc(512) != nullptr); // the free segment is given back for it
    CHECK(f.device.held() == 14 * kMiB);
    CHECK(f.alloc(18 * kMiB) != nullptr);
    CHECK(f.alloc(40 * kMiB) == nullptr); // more than the limit in all
    CHECK(f.status == PoolStatus::over_limit);
}

TEST_CASE("DevicePool bounds: a shared segment that would not fit the share is made smaller") {
    Options options = with_share(50);
    options.large_segment_size_mb = 20;
    PoolFixture f(OrderLevel::ordered, options, 64 * kMiB);
    REQUIRE(f.alloc(24 * kMiB) != nullptr);
    REQUIRE(f.alloc(3 * kMiB) != nullptr);
    CHECK(f.device.held() == 28 * kMiB);
}

TEST_CASE("DevicePool bounds: what the process holds elsewhere counts, as far as known") {
    PoolFixture f(OrderLevel::ordered, with_share(50), 64 * kMiB);
    f.device.elsewhere = 10 * kMiB;
    REQUIRE(f.alloc(20 * kMiB) != nullptr);
    CHECK(f.alloc(4 * kMiB) == nullptr);
    CHECK(f.status == PoolStatus::over_limit);
    REQUIRE(f.alloc(2 * kMiB) != nullptr);
    f.device.elsewhere = 4 * kMiB; // a library gave something back
    CHECK(f.alloc(6 * kMiB) != nullptr);
    // Far below the limit it is asked once.
    PoolFixture g(OrderLevel::ordered, with_share(50), kGiB);
    g.device.elsewhere = 10 * kMiB;
    for (int i = 0; i < 10; ++i)
        g.alloc(2 * kMiB);
    CHECK(g.device.process_asked == 1);
    // Nor is it at all without a limit.
    PoolFixture h(OrderLevel::ordered, with_share(100), 64 * kMiB);
    h.device.elsewhere = 60 * kMiB;
    CHECK(h.alloc(64 * kMiB) != nullptr);
    CHECK(h.device.process_asked == 0);
}

TEST_CASE("DevicePool bounds: everything is tried before the share ends a program") {
    // Caches are flushed, limbo is waited for, free segments go back: a share is met like a full
    // device.
    PoolFixture f(OrderLevel::fenced, with_share(50), 64 * kMiB);
    std::vector<Block*> blocks;
    for (int i = 0; i < 8; ++i)
        blocks.push_back(f.alloc(4 * kMiB));
    for (std::size_t i = 0; i < 8; ++i) {
        f.use(blocks[i], i % 4);
        f.free(blocks[i]);
    }
    CHECK(f.alloc(32 * kMiB) != nullptr);
    CHECK(f.device.held() == 32 * kMiB);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool bounds: throw_on_cudamalloc_oom refuses at once, what fits is served") {
    Options options = with_share(50);
    options.throw_on_cudamalloc_oom = true;
    PoolFixture f(OrderLevel::ordered, options, 64 * kMiB);
    f.alloc(28 * kMiB);
    f.free(f.alloc(2 * kMiB));
    CHECK(f.alloc(4 * kMiB) == nullptr); // giving the other back would have made room
    CHECK(f.status == PoolStatus::over_limit);
    CHECK(f.device.releases == 0);
    CHECK(f.pool->memory_stats(false).num_oom_rejections == 1);
    CHECK(f.pool->statistics().out_of_memory == 1);
    CHECK(f.alloc(2 * kMiB) != nullptr);
    // The driver's own refusal is met as ever.
    Options whole = options;
    whole.per_process_memory_fraction = Fraction{Fraction::kOne};
    PoolFixture g(OrderLevel::ordered, whole, 64 * kMiB);
    g.free(g.alloc(40 * kMiB));
    CHECK(g.alloc(50 * kMiB) != nullptr);
    CHECK(g.pool->memory_stats(false).num_oom_rejections == 0);
}

TEST_CASE("DevicePool bounds: above the threshold what was unused for longest goes back") {
    Options options = with_share(50);
    options.garbage_collection_threshold = Fraction{Fraction::kOne / 2};
    PoolFixture f(OrderLevel::ordered, options, 128 * kMiB); // may hold 64, threshold 32
    std::vector<DeviceAddress> bases;
    std::vector<Block*> blocks;
    for (int i = 0; i < 3; ++i) {
        blocks.push_back(f.alloc(8 * kMiB));
        bases.push_back(blocks.back()->address);
    }
    f.free(f.alloc(512)); // a small segment, which is none of its business
    f.free(blocks[1]);
    f.free(blocks[0]);
    REQUIRE(f.alloc(10 * kMiB) != nullptr); // 36 MiB with it: one has to go
    CHECK(f.device.released == std::vector<DeviceAddress>{bases[1]});
    // Without a share below 1 it does nothing.
    options.per_process_memory_fraction = Fraction{Fraction::kOne};
    PoolFixture g(OrderLevel::ordered, options, 128 * kMiB);
    Block* const free = g.alloc(60 * kMiB);
    g.alloc(58 * kMiB);
    g.free(free);
    REQUIRE(g.alloc(4 * kMiB) != nullptr);
    CHECK(g.device.releases == 0);
}

TEST_CASE("DevicePool bounds: growth far beyond the live peak gives back first") {
    PoolFixture f(OrderLevel::ordered);
    for (std::uint64_t size = 40; size <= 100; size += 20)
        f.free(f.alloc(size * kMiB));
    CHECK(f.device.held_peak() <= 115 * kMiB);
    CHECK(f.device.held() == 100 * kMiB);
    CHECK(f.pool->statistics().segment_frees == 3);
    // Within the bound nothing does.
    f.alloc(90 * kMiB);
    f.alloc(8 * kMiB);
    CHECK(f.pool->statistics().segment_frees == 3);
}

TEST_CASE("DevicePool bounds: a busy device is waited for only a moment") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc(40 * kMiB);
    Block* const other = f.alloc(4 * kMiB);
    f.free(block);
    f.device.stuck_stream = 1;
    f.use(other, 1); // behind the free: perhaps it waits for the program
    REQUIRE(f.alloc(50 * kMiB) != nullptr);
    CHECK(f.device.releases == 0);
    CHECK(f.device.pauses > 0);
    const std::uint64_t pauses = f.device.pauses;
    REQUIRE(f.alloc(60 * kMiB) != nullptr); // and not at every growth
    CHECK(f.device.pauses == pauses);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool bounds: what precedes a free that waits may be waited for") {
    PoolFixture f(OrderLevel::fenced);
    f.device.several = true;
    Block* const block = f.alloc(100 * kMiB);
    f.use(block, 1);
    f.free(block);
    REQUIRE(f.alloc(130 * kMiB) != nullptr);
    CHECK(f.device.held_peak() <= 230 * kMiB);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool bounds: how often memory goes back follows what is allocated") {
    PoolFixture f(OrderLevel::ordered, pool_options(), 64 * kGiB);
    // Each size needs a segment of its own, however often it changes.
    std::uint64_t allocated = 0;
    for (int i = 0; i < 2000; ++i) {
        const std::uint64_t size = i % 2 == 0 ? 200 * kMiB : 240 * kMiB;
        Block* const large = f.alloc(size);
        Block* const small = f.alloc((20 + i % 7 * 4) * kMiB);
        allocated += large->size + small->size;
        f.free(small);
        f.free(large);
    }
    const std::uint64_t peak = f.pool->statistics().allocated_bytes_peak;
    CHECK(f.pool->statistics().segment_frees <= allocated / (peak / 8) + 64);
}

// Where PyTorch looks for one cached block or flushes everything, here whole segments go back until
// the request fits.
TEST_CASE("DevicePool bounds: 1.5 and 1.8 GiB in turn, then 2 GiB with 8 GiB cached") {
    constexpr std::uint64_t kSmaller = 1536 * kMiB;
    constexpr std::uint64_t kLarger = 1844 * kMiB;
    for (const std::uint64_t max_split : {Options::kUnlimited, std::uint64_t{1024}}) {
        Options options = pool_options();
        options.max_split_size_mb = max_split;
        PoolFixture f(OrderLevel::fenced, options, 10 * kGiB);
        std::vector<Block*> blocks;
        for (int i = 0; i < 5; ++i) {
            blocks.push_back(f.alloc(i % 2 == 0 ? kSmaller : kLarger));
            REQUIRE(blocks.back() != nullptr);
        }
        for (Block* const block : blocks) {
            f.use(block, 1);
            f.free(block);
        }
        CHECK(f.pool->statistics().cached_bytes >= 8 * kGiB - 64 * kMiB);
        CHECK(f.alloc(2 * kGiB) != nullptr);
        CHECK(f.device.held_peak() <= 10 * kGiB);
        CHECK(f.alloc(5 * kGiB) != nullptr);
        CHECK(f.first_complaint().empty());
    }
}
