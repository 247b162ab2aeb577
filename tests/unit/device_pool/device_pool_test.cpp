// One call at a time: what is handed out, what a free does, wrong addresses, statistics.
#include "core/device_pool.h"

#include "pool_fixture.h"

#include <catch2/catch.hpp>
#include <set>
#include <thread>

using namespace cachealloc;

TEST_CASE("DevicePool: a freed block serves the next request of its size, newest first") {
    PoolFixture f(OrderLevel::ordered);
    Block* const first = f.alloc(1000);
    REQUIRE(first != nullptr);
    CHECK(first->address % kBlockAlignment == 0);
    CHECK(first->size == 1024);
    CHECK(first->requested.load() == 1000);
    CHECK(first->state.load() == BlockState::live);
    Block* const second = f.alloc(1000);
    CHECK(second != first);
    const std::uint32_t generation = first->generation;
    CHECK(f.free(second).status == PoolStatus::done);
    CHECK(f.free(first).status == PoolStatus::done);
    CHECK(f.alloc(600) == first); // rounds to the same 1024
    CHECK(first->requested.load() == 600);
    CHECK(first->generation == generation + 1);
    CHECK(f.alloc(1024) == second);
    CHECK(f.device.allocations == 1);
    CHECK(f.device.records == 0); // ordered: no driver call on the way
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool: requests larger than the device are not the pool's") {
    PoolFixture f(OrderLevel::ordered);
    for (const std::uint64_t bytes :
         {kGiB + 1, 140 * kGiB, std::uint64_t{1} << 51, std::uint64_t{1} << 63,
          ~std::uint64_t{0} - 511, ~std::uint64_t{0} - 1, ~std::uint64_t{0}}) {
        CAPTURE(bytes);
        CHECK(f.pool->allocate(bytes).status == PoolStatus::pass_through);
    }
    CHECK(f.device.allocations == 0);
    CHECK(f.pool->statistics().out_of_memory == 0);
}

TEST_CASE("DevicePool: a double free, an interior address and a foreign one are told apart") {
    for (const OrderLevel level : {OrderLevel::ordered, OrderLevel::fenced, OrderLevel::wait}) {
        PoolFixture f(level);
        Block* const block = f.alloc(4096);
        const DeviceAddress address = block->address;
        CHECK(f.map->find(address + 512) == nullptr);
        CHECK(f.map->find_containing(address + 4095) == block);
        CHECK(f.map->segment_of(address + 4095)->pool == f.pool.get());
        REQUIRE(f.free(block).status == PoolStatus::done);
        CHECK(f.pool->free(block, address, FreeKind::waits_unnoticed).status ==
              PoolStatus::not_live);
        CHECK(f.pool->free(block, address, FreeKind::does_not_wait).status == PoolStatus::not_live);
        CHECK(f.pool->set_aside(block, address).status == PoolStatus::not_live);
        const PoolStatistics statistics = f.pool->statistics();
        CHECK(statistics.frees == 1);
        CHECK(statistics.allocated_bytes == 0);
    }
}

TEST_CASE("DevicePool: a descriptor that lives elsewhere by now is not freed by an old look-up") {
    PoolFixture f(OrderLevel::ordered);
    Block* const block = f.alloc(4096);
    Block* const other = f.alloc(512);
    REQUIRE(other != nullptr);
    // As if the look-up of another address had named the block just before it was recycled.
    CHECK(f.pool->free(block, block->address + 512, FreeKind::waits_unnoticed).status ==
          PoolStatus::not_live);
    CHECK(block->state.load() == BlockState::live);
    CHECK(f.pool->set_aside(block, block->address + 512).status == PoolStatus::not_live);
    CHECK(f.pool->statistics().frees == 0);
    CHECK(f.free(block).status == PoolStatus::done);
}

TEST_CASE("DevicePool: any thread may free what another allocated") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc(4096);
    std::thread([&] { f.free(block); }).join();
    const PoolStatistics statistics = f.pool->statistics();
    CHECK(statistics.allocations == 1);
    CHECK(statistics.frees == 1);
    CHECK(statistics.allocated_bytes == 0);
    CHECK(statistics.requested_bytes == 0);
}

TEST_CASE("DevicePool: statistics say what happened, exactly") {
    PoolFixture f(OrderLevel::ordered);
    Block* const small = f.alloc(700);  // new segment
    Block* const second = f.alloc(700); // cut from it
    Block* const large = f.alloc(3 * kMiB);
    f.free(small);
    CHECK(f.alloc(700) == small); // from the thread's slot
    f.free(second);
    f.free(large);
    const PoolStatistics s = f.pool->statistics();
    CHECK(s.allocations == 4);
    CHECK(s.frees == 3);
    CHECK(s.allocated_bytes == 1024);
    CHECK(s.requested_bytes == 700);
    CHECK(s.allocated_bytes_peak == 2 * 1024 + 3 * kMiB);
    CHECK(s.reserved_bytes == f.device.held());
    CHECK(s.reserved_bytes == 6 * kMiB);
    CHECK(s.reserved_bytes_peak == 6 * kMiB);
    CHECK(s.cached_bytes == 6 * kMiB - 1024);
    CHECK(s.segments == 2);
    CHECK(s.segment_allocs == 2);
    CHECK(s.segment_frees == 0);
    CHECK(s.thread_hits == 1);
    CHECK(s.tree_hits == 1);
    CHECK(s.shared_hits + s.limbo_hits == 0);
    CHECK(s.splits == 3);
    CHECK(s.fences + s.barriers + s.host_waits + s.set_aside + s.out_of_memory == 0);
    f.free(small);
    CHECK(f.pool->trim() == 6 * kMiB);
    const PoolStatistics after = f.pool->statistics();
    CHECK(after.reserved_bytes == 0);
    CHECK(after.cached_bytes == 0);
    CHECK(after.segment_frees == 2);
    CHECK(after.reserved_bytes_peak == 6 * kMiB);
    CHECK(after.largest_free_bytes == 0);
}

TEST_CASE(
    "DevicePool: what counts as free for the program are whole segments without live blocks") {
    PoolFixture f(OrderLevel::fenced);
    Block* const small = f.alloc(512);
    Block* const large = f.alloc(3 * kMiB);
    f.use(large);
    CHECK(f.pool->wholly_free_bytes() == 0);
    f.free(large);
    CHECK(f.pool->wholly_free_bytes() == 4 * kMiB); // natively it is free, finished or not
    f.free(small);
    CHECK(f.pool->wholly_free_bytes() == 6 * kMiB);
}

TEST_CASE("DevicePool: segments are sized to the request at first, then shared") {
    Options options = pool_options();
    options.large_segment_size_mb = GENERATE(20, 64);
    const std::uint64_t shared = options.large_segment_bytes();
    PoolFixture f(OrderLevel::ordered, options, 4 * kGiB);
    f.alloc(kMiB + 1);
    CHECK(f.device.held() == 2 * kMiB);
    f.alloc(9 * kMiB);
    CHECK(f.device.held() == 12 * kMiB);
    f.alloc(9 * kMiB);
    CHECK(f.device.held() == 22 * kMiB);
    f.alloc(100 * kMiB + 1);
    CHECK(f.device.held() == 124 * kMiB);
    f.alloc(5 * kMiB); // now there is as much
    CHECK(f.device.held() == 124 * kMiB + shared);
    f.alloc(10 * kMiB); // found in the rest
    f.alloc(10 * kMiB);
    const std::uint64_t held = shared == 20 * kMiB ? 154 * kMiB : 124 * kMiB + shared;
    CHECK(f.device.held() == held);
    f.alloc(512);
    CHECK(f.device.held() == held + 2 * kMiB);
}

TEST_CASE("DevicePool: a killed pool's addresses are unknown until it is revived") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc(4096);
    const DeviceAddress address = block->address;
    f.pool->kill();
    CHECK(f.map->find(address) == nullptr);
    CHECK(f.map->segment_of(address) == nullptr);
    f.pool->revive();
    CHECK(f.map->find(address) == block);
    CHECK(f.free(block).status == PoolStatus::done);
}

TEST_CASE("DevicePool: with a cache budget of zero the heap keeps what the slots do not") {
    Options options = pool_options();
    options.cache_mb = 0;
    PoolFixture f(OrderLevel::ordered, options);
    std::set<Block*> blocks;
    for (int i = 0; i < 8; ++i)
        blocks.insert(f.alloc(kMiB));
    for (Block* block : blocks)
        f.free(block);
    // All but one went to the tree and merged there: a larger request fits.
    CHECK(f.alloc(3 * kMiB) != nullptr);
    for (int i = 0; i < 8; ++i)
        REQUIRE(f.alloc(kMiB) != nullptr);
    CHECK(f.device.held() == 8 * kMiB + 4 * kMiB);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool: caches are emptied before the pool grows") {
    PoolFixture f(OrderLevel::ordered);
    Block* const low = f.alloc(kMiB);
    Block* const high = f.alloc(kMiB); // the same segment, now full
    CHECK(f.device.held() == 2 * kMiB);
    f.free(low);
    f.free(high);
    for (int i = 0; i < 3; ++i)
        REQUIRE(f.alloc(512 * kKiB) != nullptr);
    CHECK(f.device.held() == 2 * kMiB);
}
