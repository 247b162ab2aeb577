// When memory runs out: what is given back, in which order, what is waited for; and calls that
// fail.
#include "core/device_pool.h"

#include "pool_fixture.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

/// `count` segments of `bytes` each, live.
std::vector<Block*> fill(PoolFixture& f, std::size_t count, std::uint64_t bytes) {
    std::vector<Block*> blocks;
    for (std::size_t i = 0; i < count; ++i) {
        blocks.push_back(f.alloc(bytes));
        REQUIRE(blocks.back() != nullptr);
    }
    return blocks;
}

} // namespace

TEST_CASE("DevicePool memory: what is released is what became free first") {
    PoolFixture f(OrderLevel::ordered, pool_options(), 8 * kMiB);
    const std::vector<Block*> blocks = fill(f, 4, 2 * kMiB);
    std::vector<DeviceAddress> bases;
    for (const Block* block : blocks)
        bases.push_back(block->address);
    for (const std::size_t i : {2U, 0U, 3U, 1U})
        f.free(blocks[i]);
    REQUIRE(f.alloc(3 * kMiB) != nullptr); // a segment of 4 MiB: two of the old ones must go
    CHECK(f.device.released == std::vector<DeviceAddress>{bases[2], bases[0]});
    CHECK(f.pool->statistics().segment_frees == 2);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool memory: one cold segment that is large enough is preferred to many") {
    PoolFixture f(OrderLevel::ordered, pool_options(), 20 * kMiB);
    Block* const first = f.alloc(2 * kMiB);
    Block* const second = f.alloc(2 * kMiB);
    Block* const large = f.alloc(16 * kMiB);
    f.free(first);
    f.free(second);
    f.free(large);
    REQUIRE(f.alloc(17 * kMiB) != nullptr); // 18 MiB: one segment alone does not do
    CHECK(f.device.released.size() == 3);
    PoolFixture g(OrderLevel::ordered, pool_options(), 20 * kMiB);
    Block* const cold = g.alloc(4 * kMiB);
    const DeviceAddress cold_base = cold->address;
    Block* const warm = g.alloc(15 * kMiB);
    g.free(cold);
    g.free(warm);
    REQUIRE(g.alloc(512) != nullptr); // a small segment: the coldest will do
    CHECK(g.device.released == std::vector<DeviceAddress>{cold_base});
}

TEST_CASE("DevicePool memory: limbo is waited for before the pool gives up") {
    PoolFixture f(OrderLevel::fenced, pool_options(), 8 * kMiB);
    f.device.several = GENERATE(false, true);
    const std::vector<Block*> blocks = fill(f, 4, 2 * kMiB);
    for (std::size_t i = 0; i < 4; ++i) {
        f.use(blocks[i], i);
        f.free(blocks[i]);
    }
    REQUIRE(f.alloc(8 * kMiB) != nullptr);
    CHECK(f.first_complaint().empty());
    CHECK(f.device.held() == 8 * kMiB);
    CHECK(f.device.segments() == 1);
}

TEST_CASE("DevicePool memory: limbo is waited for where no barrier counts, too") {
    PoolFixture f(OrderLevel::finished, pool_options(), 8 * kMiB);
    const std::vector<Block*> blocks = fill(f, 4, 2 * kMiB);
    for (std::size_t i = 0; i < 4; ++i) {
        f.use(blocks[i], i);
        f.free(blocks[i]);
    }
    REQUIRE(f.alloc(8 * kMiB) != nullptr);
    CHECK(f.device.waits == 0);
    CHECK(f.pool->statistics().host_waits > 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE(
    "DevicePool memory: everything that has finished is found, however many fences there are") {
    const FreeKind kind = GENERATE(FreeKind::waits_unnoticed, FreeKind::does_not_wait);
    const bool several = GENERATE(false, true);
    CAPTURE(static_cast<int>(kind), several);
    PoolFixture f(OrderLevel::fenced, pool_options(), 16 * kMiB);
    f.device.several = several;
    const std::vector<Block*> blocks = fill(f, 8, 2 * kMiB);
    for (Block* block : blocks) {
        f.use(block, 1);
        f.free(block, kind);
    }
    f.device.finish_all();
    CHECK(f.alloc(16 * kMiB) != nullptr);
    CHECK(f.device.pauses == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE(
    "DevicePool memory: trim gives back everything that has finished, and waits for nothing") {
    const FreeKind kind = GENERATE(FreeKind::waits_unnoticed, FreeKind::does_not_wait);
    PoolFixture f(OrderLevel::fenced);
    const std::vector<Block*> blocks = fill(f, 9, 2 * kMiB);
    for (std::size_t i = 0; i < 8; ++i) {
        f.use(blocks[i], 1);
        f.free(blocks[i], kind);
    }
    CHECK(f.pool->trim() == 0);
    CHECK(f.device.held() == 18 * kMiB);
    f.device.finish_all();
    f.use(blocks[8], 2);
    f.free(blocks[8], kind);
    CHECK(f.pool->trim() == 16 * kMiB);
    CHECK(f.device.pauses == 0);
    CHECK(f.device.held() == 2 * kMiB);
    CHECK(f.wind_up() == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool memory: releasing all waits for frees that natively wait, and no others") {
    PoolFixture f(OrderLevel::fenced);
    const std::vector<Block*> blocks = fill(f, 4, 2 * kMiB);
    f.use(blocks[0], 0);
    f.use(blocks[1], 1);
    f.free(blocks[0]);
    f.free(blocks[1]);
    f.use(blocks[2], 2);
    f.free(blocks[2], FreeKind::does_not_wait);
    f.device.stuck_stream = 2;
    f.device.release_waits = false; // else the first release finishes everything
    CHECK(f.pool->release_all() == 4 * kMiB);
    CHECK(f.device.pauses > 0);
    CHECK(f.device.held() == 4 * kMiB);
    const std::uint64_t pauses = f.device.pauses;
    CHECK(f.pool->release_all() == 0);
    CHECK(f.device.pauses == pauses);
    f.device.finish_all();
    CHECK(f.pool->release_all() == 2 * kMiB);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool memory: out of memory is said, counted, and nothing is lost by it") {
    PoolFixture f(OrderLevel::fenced, pool_options(), 8 * kMiB);
    const std::vector<Block*> blocks = fill(f, 3, 2 * kMiB);
    f.use(blocks[1]);
    f.free(blocks[1]);
    CHECK(f.alloc(6 * kMiB) == nullptr);
    CHECK(f.status == PoolStatus::out_of_memory);
    CHECK(f.pool->statistics().out_of_memory == 1);
    CHECK(f.pool->statistics().allocated_bytes == 4 * kMiB);
    CHECK(f.alloc(4 * kMiB) != nullptr);
    CHECK(f.alloc(512) == nullptr);
    CHECK(f.status == PoolStatus::out_of_memory);
    f.free(blocks[0]);
    CHECK(f.alloc(512) != nullptr);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool memory: a program that takes all that counts as free succeeds") {
    PoolFixture f(OrderLevel::fenced, pool_options(), 64 * kMiB);
    std::vector<Block*> blocks = fill(f, 10, 3 * kMiB);
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
        f.use(blocks[i], i % 4);
        f.free(blocks[i]);
    }
    const std::uint64_t free = 64 * kMiB - f.device.held() + f.pool->wholly_free_bytes();
    CHECK(f.alloc(free) != nullptr);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool memory: room in segments of the other kind is used before giving up") {
    PoolFixture f(OrderLevel::ordered, pool_options(), 8 * kMiB);
    const std::vector<Block*> blocks = fill(f, 2, 3 * kMiB); // 1 MiB is left over in each
    REQUIRE(f.alloc(kMiB) != nullptr);
    Block* const small = f.alloc(512);
    REQUIRE(small != nullptr);
    CHECK_FALSE(small->segment->small);
    CHECK(f.alloc(kMiB + 512) == nullptr);
    CHECK(f.free(small).status == PoolStatus::done);
    for (Block* block : blocks)
        f.free(block);
    CHECK(f.alloc(4 * kMiB) != nullptr);
    CHECK(f.first_complaint().empty());
    // And a large request in what small ones left.
    PoolFixture g(OrderLevel::ordered, pool_options(), 2 * kMiB);
    REQUIRE(g.alloc(512) != nullptr);
    CHECK(g.alloc(kMiB + 512) != nullptr);
}

TEST_CASE("DevicePool memory: a large shared segment is tried before, the exact size after") {
    PoolFixture f(OrderLevel::ordered, pool_options(), 110 * kMiB);
    REQUIRE(f.alloc(104 * kMiB) != nullptr);
    REQUIRE(f.alloc(3 * kMiB) != nullptr); // an eighth of the pool would not fit
    CHECK(f.device.held() == 108 * kMiB);
}

TEST_CASE(
    "DevicePool memory: a large free segment is not pinned by a small block within the slack") {
    for (const bool slack : {true, false}) {
        Options options = pool_options();
        if (!slack) options.slack_mb = options.slack_percent = 0;
        PoolFixture f(OrderLevel::ordered, options);
        f.free(f.alloc(500 * kMiB)); // 2 % of it is what sparing it may cost
        REQUIRE(f.alloc(2 * kMiB) != nullptr);
        CHECK(f.device.segments() == (slack ? 2U : 1U));
        CHECK((f.pool->wholly_free_bytes() >= 500 * kMiB) == slack);
        REQUIRE(f.alloc(400 * kMiB) != nullptr); // what the segment is for
        CHECK(f.device.segments() == (slack ? 2U : 1U));
    }
    // Rather than fail, or wait, it is cut.
    PoolFixture f(OrderLevel::ordered, pool_options(), 500 * kMiB);
    f.free(f.alloc(500 * kMiB));
    REQUIRE(f.alloc(2 * kMiB) != nullptr);
    CHECK(f.device.released.empty());
}

TEST_CASE("DevicePool memory: a source that fails for another reason is passed on") {
    PoolFixture f(OrderLevel::ordered);
    f.device.fail_at = 1;
    CHECK(f.alloc(512) == nullptr);
    CHECK(f.status == PoolStatus::pass_through);
    CHECK(f.alloc(512) != nullptr);
}

TEST_CASE("DevicePool memory: a segment that cannot be given back stays in use") {
    PoolFixture f(OrderLevel::ordered, pool_options(), 4 * kMiB);
    Block* const first = f.alloc(2 * kMiB);
    Block* const second = f.alloc(2 * kMiB);
    f.free(first);
    f.free(second);
    f.device.fail_at = f.device.calls + 2; // growth finds no room, then the first release fails
    CHECK(f.alloc(4 * kMiB) != nullptr);
    CHECK(f.device.releases == 3);
    CHECK(f.pool->statistics().segment_frees == 2);
    CHECK(f.pool->statistics().reserved_bytes == f.device.held());
    CHECK(f.first_complaint().empty());
}

// ---- every call that can fail fails once

namespace {

/// A program that goes through caches, tree, limbo, barriers, waits, growth, release and captures.
/// Frees that fail are tried once more, as a program could.
void exercise(PoolFixture& f, bool step_down) {
    std::vector<Block*> held;
    const auto take = [&](std::uint64_t bytes, std::size_t stream) {
        if (Block* const block = f.alloc(bytes)) {
            f.use(block, stream);
            held.push_back(block);
        }
    };
    const auto give = [&](std::size_t at, FreeKind kind) {
        if (at >= held.size()) return;
        Block* const block = held[at];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
        if (f.free(block, kind).status != PoolStatus::done) {
            CHECK(block->state.load() == BlockState::live);
            CHECK(f.free(block, kind).status == PoolStatus::done);
        }
    };
    for (std::size_t round = 0; round < 3; ++round) {
        f.device.several = round != 1;
        for (std::size_t i = 0; i < 5; ++i)
            take((i + 1) * kMiB + 512, i % 4);
        take(700, 0);
        for (int i = 0; i < 4; ++i)
            give(1, i == 2 ? FreeKind::does_not_wait : FreeKind::waits_unnoticed);
        take(7 * kMiB, 1);
        take(3 * kMiB, 2);
        f.device.advance(3);
        take(12 * kMiB, 3); // more than is left
        give(0, FreeKind::waits_unnoticed);
        f.pool->trim();
        if (step_down && round == 1) f.pool->enter_finished(true);
        if (!held.empty()) {
            if (f.set_aside(held.back()).status == PoolStatus::done) held.pop_back();
            f.pool->captures_ended();
        }
        take(2 * kMiB, 0);
    }
    while (!held.empty())
        give(0, FreeKind::waits_unnoticed);
}

} // namespace

TEST_CASE(
    "DevicePool memory: whichever call fails, nothing is lost and nothing is handed out early") {
    const OrderLevel level = GENERATE(OrderLevel::fenced, OrderLevel::finished, OrderLevel::wait);
    const FreeMode mode = GENERATE(FreeMode::async, FreeMode::sync);
    const bool soft = GENERATE(false, true);
    Options options = pool_options(mode);
    options.expandable_segments = GENERATE(false, true);
    const bool step_down = level == OrderLevel::fenced;
    std::uint64_t failed_calls = 0;
    for (std::uint64_t n = 1;; ++n) {
        CAPTURE(n, static_cast<int>(level), static_cast<int>(mode), soft);
        CAPTURE(options.expandable_segments);
        PoolFixture f(level, options, 24 * kMiB);
        f.device.fail_at = n;
        f.device.order_failure_status = soft ? OrderStatus::refused : OrderStatus::failed;
        f.device.source_failure = soft ? SourceStatus::out_of_memory : SourceStatus::failed;
        exercise(f, step_down);
        const bool happened = f.device.calls >= n;
        f.device.fail_at = 0;
        CHECK(f.pool->statistics().reserved_bytes == f.device.held());
        CHECK(f.wind_up() == 0);
        const PoolStatistics statistics = f.pool->statistics();
        CHECK(statistics.allocated_bytes == 0);
        CHECK(statistics.allocations == statistics.frees);
        CHECK(statistics.segments == 0);
        CHECK(f.first_complaint() == "");
        if (!happened) break;
        ++failed_calls;
    }
    CHECK(failed_calls > 40);
}

// Without waiting the second thread finds the memory neither in the pool nor with the driver.
TEST_CASE("DevicePool memory: what another thread is giving back to the driver is waited for") {
    PoolFixture f(OrderLevel::ordered, pool_options(), 64 * kMiB);
    f.free(f.alloc(40 * kMiB));
    PoolStatus asked = PoolStatus::failed;
    std::thread other;
    f.device.before_release = [&] {
        if (other.joinable()) return;
        other = std::thread([&] { asked = f.pool->allocate(50 * kMiB).status; });
        while (f.device.refusals == 0)
            std::this_thread::yield();
        for (int i = 0; i < 1000; ++i)
            std::this_thread::yield();
    };
    f.pool->trim();
    other.join();
    CHECK(asked == PoolStatus::done);
}

TEST_CASE("DevicePool memory: whichever call finds the context lost, no call hangs or hands out "
          "wrongly") {
    const OrderLevel level = GENERATE(OrderLevel::fenced, OrderLevel::finished, OrderLevel::wait);
    for (std::uint64_t n = 1;; ++n) {
        CAPTURE(n, static_cast<int>(level));
        PoolFixture f(level, pool_options(), 24 * kMiB);
        f.device.fail_at = n;
        f.device.order_failure_status = OrderStatus::lost;
        std::vector<Block*> held;
        for (int round = 0; round < 4; ++round) {
            for (std::uint64_t i = 1; i < 5; ++i) {
                if (Block* const block = f.alloc(i * kMiB)) {
                    f.use(block, i % 4);
                    held.push_back(block);
                }
            }
            while (held.size() > 2) {
                f.free(held.back());
                held.pop_back();
            }
            f.pool->trim();
        }
        const bool happened = f.device.calls >= n;
        CHECK(f.first_complaint() == "");
        if (f.pool->fences().lost() != 0) CHECK(f.pool->fences().lost() == 999);
        if (!happened) break;
    }
}
