// Which freed memory may be handed out when: levels, barriers, waits, captures.
#include "core/device_pool.h"

#include "pool_fixture.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace cachealloc;

namespace {

constexpr std::uint64_t kLarge = 3 * kMiB;

/// No growth as long as anything freed can be ordered.
Options no_slack() {
    Options options = pool_options();
    options.slack_mb = 0;
    options.slack_percent = 0;
    return options;
}

} // namespace

TEST_CASE("DevicePool order: at level ordered everything freed is free at once") {
    PoolFixture f(OrderLevel::ordered);
    for (const FreeKind kind : {FreeKind::waits_unnoticed, FreeKind::does_not_wait}) {
        Block* const block = f.alloc(4096);
        f.use(block);
        f.free(block, kind);
        CHECK(f.alloc(4096) == block);
    }
    CHECK(f.device.records == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: within the slack the pool grows rather than order anything") {
    PoolFixture f(OrderLevel::fenced);
    f.device.several = true;
    for (int i = 0; i < 10; ++i) {
        Block* const block = f.alloc(kLarge);
        REQUIRE(block != nullptr);
        f.use(block, 1);
        f.free(block);
    }
    CHECK(f.device.segments() == 10);
    CHECK(f.device.waits == 0);
    CHECK(f.device.pauses == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: beyond it a barrier, or a wait for the oldest of several") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    f.device.several = true;
    SECTION("few younger fences: a barrier behind the oldest") {
        Block* const block = f.alloc(kLarge);
        f.use(block, 1);
        f.free(block);
        CHECK(f.alloc(kLarge) == block);
        CHECK(f.device.waits == 1);
        CHECK(f.device.pauses == 0);
        CHECK(f.pool->statistics().barriers == 1);
    }
    SECTION("three younger fences: the host waits for the oldest") {
        std::vector<Block*> blocks;
        for (int i = 0; i < 4; ++i)
            blocks.push_back(f.alloc(kLarge));
        for (std::size_t i = 0; i < 4; ++i) {
            f.use(blocks[i], i);
            f.free(blocks[i]);
        }
        CHECK(f.alloc(kLarge) == blocks[0]);
        CHECK(f.device.waits == 0);
        CHECK(f.device.pauses > 0);
        CHECK(f.pool->statistics().host_waits == 1);
        CHECK(f.pool->statistics().limbo_hits == 1);
    }
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: with one stream in use one barrier settles all of limbo") {
    PoolFixture f(OrderLevel::fenced);
    std::vector<Block*> blocks;
    for (int i = 0; i < 6; ++i)
        blocks.push_back(f.alloc(kLarge));
    for (Block* block : blocks) {
        f.use(block);
        f.free(block);
    }
    for (int i = 0; i < 6; ++i)
        REQUIRE(f.alloc(kLarge) != nullptr);
    CHECK(f.device.segments() == 6);
    CHECK(f.device.waits == 1);
    CHECK(f.device.pauses == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: the hint about streams never decides over safety") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    for (const bool several : {false, true, false}) {
        f.device.several = several;
        for (std::size_t i = 0; i < 8; ++i) {
            Block* const block = f.alloc(kLarge);
            REQUIRE(block != nullptr);
            f.use(block, i % 4); // whatever the hint says
            f.free(block);
        }
    }
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: memory of frees that do not wait is polled, never waited for") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    f.device.several = GENERATE(false, true);
    Block* const block = f.alloc(kLarge);
    f.use(block, 2);
    REQUIRE(f.free(block, FreeKind::does_not_wait).status == PoolStatus::done);
    Block* const other = f.alloc(kLarge);
    REQUIRE(other != nullptr);
    CHECK(other != block);
    CHECK(f.device.waits == 0);
    CHECK(f.device.pauses == 0);
    f.device.finish_all();
    CHECK(f.alloc(kLarge) == block);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: free:sync waits as natively, at every level") {
    const OrderLevel level =
        GENERATE(OrderLevel::ordered, OrderLevel::fenced, OrderLevel::finished, OrderLevel::wait);
    CAPTURE(static_cast<int>(level));
    PoolFixture f(level, pool_options(FreeMode::sync));
    Block* const block = f.alloc(4096);
    Block* const other = f.alloc(4096);
    f.use(block, 0);
    f.use(other, 0);
    CHECK(f.free(block).status == PoolStatus::done);
    CHECK(f.device.idle()); // all earlier work, not only the block's
    CHECK(f.alloc(4096) == block);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: only a free that is told to wait does so, and it is counted") {
    const OrderLevel level =
        GENERATE(OrderLevel::ordered, OrderLevel::fenced, OrderLevel::finished);
    CAPTURE(static_cast<int>(level));
    PoolFixture f(level);
    Block* const first = f.alloc(4096);
    Block* const second = f.alloc(4096);
    f.use(first);
    CHECK(f.free(first, FreeKind::waits_unnoticed).status == PoolStatus::done);
    CHECK_FALSE(f.device.idle());
    CHECK(f.pool->statistics().native_waits == 0);
    f.use(second);
    CHECK(f.free(second, FreeKind::waits_on_host).status == PoolStatus::done);
    CHECK(f.device.idle());
    CHECK(f.pool->statistics().native_waits == 1);
    CHECK(f.pool->statistics().host_waits == 1);
    CHECK(f.pool->statistics().native_wait_ns == f.pool->statistics().host_wait_ns);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: a free that waits on the device settles at once where it may") {
    const OrderLevel level =
        GENERATE(OrderLevel::ordered, OrderLevel::fenced, OrderLevel::finished);
    CAPTURE(static_cast<int>(level));
    PoolFixture f(level);
    f.device.several = true;
    Block* const block = f.alloc(4096);
    f.use(block, 1);
    CHECK(f.free(block, FreeKind::waits_on_device).status == PoolStatus::done);
    CHECK_FALSE(f.device.idle()); // the host did not wait
    CHECK(f.pool->statistics().host_waits == 0);
    const bool fenced = level == OrderLevel::fenced;
    CHECK(f.pool->statistics().barriers == (fenced ? 1 : 0));
    CHECK((f.alloc(4096) == block) == (level != OrderLevel::finished));
    f.use(block, 2);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: a free that does not wait natively does not wait under free:sync") {
    PoolFixture f(OrderLevel::fenced, pool_options(FreeMode::sync));
    Block* const block = f.alloc(4096);
    f.use(block);
    CHECK(f.free(block, FreeKind::does_not_wait).status == PoolStatus::done);
    CHECK_FALSE(f.device.idle());
    CHECK(f.device.pauses == 0);
}

TEST_CASE("DevicePool order: a free that cannot be ordered did not happen") {
    const OrderLevel level = GENERATE(OrderLevel::fenced, OrderLevel::finished, OrderLevel::wait);
    PoolFixture f(level);
    Block* const block = f.alloc(4096);
    f.use(block);
    f.device.fail_at = f.device.calls + 1;
    const PoolResult result = f.free(block);
    CHECK(result.status == PoolStatus::failed);
    CHECK(result.native == 999);
    CHECK(block->state.load() == BlockState::live);
    CHECK(f.pool->statistics().frees == 0);
    CHECK(f.pool->statistics().allocated_bytes == 4096);
    CHECK(f.free(block).status == PoolStatus::done);
    CHECK(f.wind_up() == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: once the context is lost the driver answers everything") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc(4096);
    Block* const other = f.alloc(4096);
    f.free(other);
    f.device.order_failure_status = OrderStatus::lost;
    f.device.fail_at = f.device.calls + 1;
    const PoolResult result = f.free(block);
    CHECK(result.status == PoolStatus::failed);
    CHECK(result.native == 999);
    CHECK(f.pool->allocate(4096).status == PoolStatus::pass_through);
    CHECK(f.pool->allocate(kLarge).status == PoolStatus::pass_through);
    CHECK(f.free(block).status == PoolStatus::failed);
}

TEST_CASE("DevicePool order: a fault that a poll sees makes the pool step aside too") {
    PoolFixture f(OrderLevel::fenced);
    f.device.several = true;
    Block* const block = f.alloc(kLarge);
    Block* const small = f.alloc(512);
    f.use(block);
    f.free(block);
    f.free(small);
    f.device.order_failure_status = OrderStatus::lost;
    f.device.fail_at = f.device.calls + 1;
    f.pool->allocate(5 * kMiB); // polls, and may or may not have been served
    REQUIRE(f.pool->fences().lost() == 999);
    CHECK(f.pool->allocate(5 * kMiB).status == PoolStatus::pass_through);
    CHECK(f.pool->allocate(512).status == PoolStatus::pass_through);
}

TEST_CASE("DevicePool order: asked about a fault, the pool steps aside if there is one") {
    PoolFixture f(OrderLevel::fenced);
    f.free(f.alloc(512));
    f.pool->check_for_fault();
    CHECK(f.alloc(512) != nullptr);
    f.device.fail_at = f.device.calls + 1; // an error that leaves the context alive
    f.pool->check_for_fault();
    CHECK(f.alloc(512) != nullptr);
    f.device.order_failure_status = OrderStatus::lost;
    f.device.fail_at = f.device.calls + 1;
    f.pool->check_for_fault();
    CHECK(f.pool->allocate(512).status == PoolStatus::pass_through);
}

TEST_CASE("DevicePool order: beside a capture a freed block is set aside and comes back after it") {
    const OrderLevel level =
        GENERATE(OrderLevel::ordered, OrderLevel::fenced, OrderLevel::finished);
    PoolFixture f(level, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block);
    f.device.capture_open = true;
    CHECK(f.set_aside(block).status == PoolStatus::done);
    CHECK(block->state.load() == BlockState::aside);
    CHECK(f.pool->statistics().allocated_bytes == 0);
    CHECK(f.device.records == 0);
    CHECK(f.alloc(kLarge) != block);
    f.device.capture_open = false;
    f.pool->captures_ended();
    CHECK(f.device.records == 1);
    CHECK(f.alloc(kLarge) != block); // only polled, and not finished
    CHECK(f.device.pauses == 0);
    f.device.finish_all();
    CHECK(f.alloc(kLarge) == block);
    CHECK(f.first_complaint().empty());
    f.pool->captures_ended();
    CHECK(f.pool->statistics().set_aside == 1);
}

TEST_CASE("DevicePool order: a free that meets a capture which just began is set aside") {
    const OrderLevel level = GENERATE(OrderLevel::fenced, OrderLevel::finished, OrderLevel::wait);
    const FreeKind kind = GENERATE(FreeKind::waits_unnoticed, FreeKind::does_not_wait);
    CAPTURE(static_cast<int>(level));
    PoolFixture f(level);
    Block* const block = f.alloc(kLarge);
    f.use(block);
    f.device.capture_open = true;
    CHECK(f.free(block, kind).status == PoolStatus::done);
    CHECK(block->state.load() == BlockState::aside);
    CHECK(f.pool->statistics().set_aside == 1);
    CHECK(f.pool->statistics().frees == 1);
    f.pool->captures_ended(); // yet another began
    CHECK(block->state.load() == BlockState::aside);
    f.device.capture_open = false;
    CHECK(f.wind_up() == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: where no fence can be had the memory comes back all the same") {
    // No capture ever begins or ends in this program.
    Options options = no_slack();
    SECTION("the ring is full") {
        PoolFixture f(OrderLevel::fenced, options, 4 * kMiB);
        Block* const block = f.alloc(2 * kMiB);
        for (std::uint32_t i = 0; i < Fences::kEvents; ++i) {
            Block* const small = f.alloc(512);
            REQUIRE(small != nullptr);
            f.use(small, 1);
            REQUIRE(f.free(small, FreeKind::does_not_wait).status == PoolStatus::done);
        }
        REQUIRE(f.free(block, FreeKind::does_not_wait).status == PoolStatus::done);
        CHECK(f.device.pauses == 0);
        f.device.finish_all();
        CHECK(f.alloc(2 * kMiB) != nullptr);
        CHECK(f.first_complaint().empty());
    }
    SECTION("there are no events") {
        PoolFixture f(OrderLevel::wait, options, 2 * kMiB);
        Block* const block = f.alloc(2 * kMiB);
        f.use(block);
        REQUIRE(f.free(block, FreeKind::does_not_wait).status == PoolStatus::done);
        f.device.finish_all();
        CHECK(f.alloc(2 * kMiB) != nullptr);
        CHECK(f.first_complaint().empty());
    }
}

TEST_CASE("DevicePool order: without events a miss does not wait for frees that natively do not") {
    PoolFixture f(OrderLevel::wait);
    Block* const block = f.alloc(kLarge);
    f.use(block, 1);
    REQUIRE(f.free(block, FreeKind::does_not_wait).status == PoolStatus::done);
    Block* const other = f.alloc(kLarge); // there is memory enough
    REQUIRE(other != nullptr);
    CHECK(f.device.synchronizations == 0);
    CHECK_FALSE(f.device.idle());
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: a miss beside a capture uses up no events") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc(kLarge);
    f.use(block, 1);
    f.device.capture_open = true;
    REQUIRE(f.set_aside(block).status == PoolStatus::done);
    std::uint64_t size = kMiB;
    for (std::uint32_t i = 0; i < 2 * Fences::kEvents; ++i) {
        size = size % (2 * kMiB) + 512; // a miss each time
        if (Block* const missed = f.alloc(size)) f.set_aside(missed);
    }
    f.device.capture_open = false;
    CHECK(f.wind_up() == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool order: at level finished only finished blocks, by growth or by waiting") {
    PoolFixture f(OrderLevel::finished, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block, 3);
    f.free(block);
    CHECK(f.alloc(kLarge) == block);
    CHECK(f.device.waits == 0);
    CHECK(f.device.pauses > 0);
    CHECK(f.first_complaint().empty());
}
