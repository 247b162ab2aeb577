// The step down to level `finished`: what was settled without having finished, and who waits for
// it.
#include "core/device_pool.h"

#include "pool_fixture.h"

#include <catch2/catch.hpp>

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

TEST_CASE("DevicePool levels: the step to finished waits for what was settled without an end") {
    const OrderLevel before = GENERATE(OrderLevel::ordered, OrderLevel::fenced);
    CAPTURE(static_cast<int>(before));
    PoolFixture f(before, no_slack());
    Block* const block = f.alloc(kLarge);
    Block* const waiting = f.alloc(kLarge);
    f.use(block);
    f.free(block);
    f.alloc(5 * kMiB); // a barrier, where there are any: the block is in the heap now
    f.use(waiting);
    f.free(waiting);
    f.pool->enter_finished(true);
    CHECK(f.level() == OrderLevel::finished);
    f.device.one_stream_ = false; // there are writers that no stream holds up now
    CHECK(f.alloc(kLarge) != nullptr);
    CHECK(f.alloc(kLarge) != nullptr);
    CHECK(f.device.segments() == 3);
    f.pool->enter_finished(true); // once is enough
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool levels: of two threads that step down at once neither goes on too early") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block, 1);
    f.free(block);
    REQUIRE(f.alloc(kLarge) == block);
    bool second_went_on = false;
    f.device.on_pause = [&] {
        f.device.on_pause = nullptr;
        f.pool->enter_finished(true);
        second_went_on = !f.pool->fences().finished(f.pool->fences().last_barrier());
    };
    f.pool->enter_finished(true);
    CHECK_FALSE(second_went_on);
    CHECK(f.device.pauses > 0);
}

TEST_CASE("DevicePool levels: where that step must not wait nothing cached is handed out") {
    const OrderLevel before = GENERATE(OrderLevel::ordered, OrderLevel::fenced);
    CAPTURE(static_cast<int>(before));
    PoolFixture f(before, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block);
    f.free(block);
    f.alloc(5 * kMiB);
    f.pool->enter_finished(false);
    CHECK(f.device.pauses == 0);
    CHECK_FALSE(f.device.idle());
    f.device.one_stream_ = false;
    Block* const other = f.alloc(kLarge);
    REQUIRE(other != nullptr);
    CHECK(other != block);
    CHECK(f.alloc(kLarge) != block);
    CHECK(f.device.pauses == 0);
    f.device.finish_all();
    // One look may be needed to notice.
    Block* again = f.alloc(kLarge);
    if (again != block) again = f.alloc(kLarge);
    CHECK(again == block);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool levels: that step beside a capture holds back what it cannot wait for") {
    const OrderLevel before = GENERATE(OrderLevel::ordered, OrderLevel::fenced);
    PoolFixture f(before, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block);
    f.free(block);
    f.alloc(5 * kMiB);
    f.device.capture_open = true;
    f.pool->enter_finished(true);
    f.device.capture_open = false;
    f.device.one_stream_ = false;
    f.alloc(kLarge);
    f.device.finish_all();
    f.alloc(kLarge);
    CHECK(f.alloc(kLarge) != nullptr);
    CHECK(f.device.segments() <= 4); // the block came back into use
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool levels: waiting for the earlier users of what was handed out") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    CHECK(f.pool->await_earlier_users().status == PoolStatus::done);
    CHECK(f.device.queries == 0);
    Block* const block = f.alloc(kLarge);
    f.use(block, 1);
    f.free(block);
    CHECK(f.alloc(kLarge) == block);
    CHECK_FALSE(f.pool->fences().finished(f.pool->fences().last_barrier()));
    f.device.fail_at = f.device.calls + 1;
    CHECK(f.pool->await_earlier_users().status == PoolStatus::failed);
    CHECK(f.pool->await_earlier_users().status == PoolStatus::done);
    CHECK(f.pool->fences().finished(f.pool->fences().last_barrier()));
    CHECK(f.pool->fences().finished(f.pool->fences().last_barrier()));
}

TEST_CASE("DevicePool levels: leaving ordered fences what comes and keeps what was") {
    PoolFixture f(OrderLevel::ordered, no_slack());
    Block* const before = f.alloc(kLarge);
    Block* const after = f.alloc(kLarge);
    f.use(before);
    f.free(before);
    CHECK(f.pool->statistics().fences == 0);
    CHECK(f.pool->leave_ordered());
    CHECK(f.level() == OrderLevel::fenced);
    CHECK_FALSE(f.pool->leave_ordered()); // once is enough
    CHECK(f.alloc(kLarge) == before);     // whoever is new waits for the caller's event
    f.use(after);
    f.free(after);
    CHECK(f.pool->statistics().fences == 1);
    CHECK(f.pool->statistics().barriers == 0);
}

TEST_CASE("DevicePool levels: what ordered handed out unfenced counts at the step to finished") {
    PoolFixture f(OrderLevel::ordered, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block);
    f.free(block);
    REQUIRE(f.alloc(kLarge) == block);
    f.pool->leave_ordered();
    f.pool->enter_finished(true);
    f.device.one_stream_ = false;
    f.use(block, 1); // a writer that nothing holds up
    CHECK(f.first_complaint().empty());
}
