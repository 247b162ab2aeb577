// Each rule of safe reuse switched off: the oracle must see the damage, and see none without.
#include "core/device_pool.h"

#include "pool_fixture.h"
#include "tests/unit/order/rules_off.h"

#include <catch2/catch.hpp>
#include <initializer_list>

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

/// Runs `program` on a fresh pool and says whether the oracle complained.
template <class Program>
bool harmed(std::initializer_list<Rule> off, OrderLevel level, Program program) {
    const RulesOff rules(off);
    PoolFixture f(level, no_slack());
    program(f);
    return !f.first_complaint().empty();
}

} // namespace

TEST_CASE("DevicePool rules: fence") {
    const auto program = [](PoolFixture& f) {
        Block* const block = f.alloc(4096);
        f.use(block, 1);
        f.free(block);
        f.alloc(4096);
    };
    CHECK_FALSE(harmed({}, OrderLevel::fenced, program));
    CHECK(harmed({Rule::fence}, OrderLevel::fenced, program));
}

TEST_CASE("DevicePool rules: numbering") {
    const auto program = [](PoolFixture& f) {
        f.device.several = true;
        Block* const first = f.alloc(4096);
        Block* const second = f.alloc(kLarge);
        f.free(first);
        f.device.finish_all(); // the first fence has finished
        f.use(second, 1);
        f.free(second); // its stamp is the first fence's number
        f.alloc(kLarge);
    };
    CHECK_FALSE(harmed({}, OrderLevel::fenced, program));
    CHECK(harmed({Rule::numbering}, OrderLevel::fenced, program));
}

TEST_CASE("DevicePool rules: barrier") {
    const auto program = [](PoolFixture& f) {
        Block* const block = f.alloc(kLarge);
        f.use(block, 1);
        f.free(block);
        f.alloc(kLarge);
    };
    CHECK_FALSE(harmed({}, OrderLevel::fenced, program));
    CHECK(harmed({Rule::barrier}, OrderLevel::fenced, program));
}

TEST_CASE("DevicePool rules: finished_level") {
    const auto program = [](PoolFixture& f) {
        Block* const block = f.alloc(kLarge);
        f.use(block, 1);
        const Stamp stamp = f.pool->fences().stamp();
        f.free(block);
        REQUIRE(f.pool->fences().barrier(stamp).done());
        f.pool->fences().lower(OrderLevel::finished);
        f.alloc(kLarge);
    };
    CHECK_FALSE(harmed({}, OrderLevel::fenced, program));
    CHECK(harmed({Rule::finished_level}, OrderLevel::fenced, program));
}

TEST_CASE("DevicePool rules: finished_only") {
    const auto program = [](PoolFixture& f) {
        Block* const asynchronous = f.alloc(5 * kMiB);
        Block* const classic = f.alloc(kLarge);
        f.use(asynchronous, 1);
        f.free(asynchronous, FreeKind::does_not_wait);
        f.free(classic);
        f.alloc(kLarge);   // a barrier, which stands behind both
        f.alloc(5 * kMiB); // and counts for the classic free only
    };
    CHECK_FALSE(harmed({}, OrderLevel::fenced, program));
    CHECK(harmed({Rule::finished_only}, OrderLevel::fenced, program));
}

TEST_CASE("DevicePool rules: transition_sync") {
    for (const bool may_wait : {true, false}) {
        const auto program = [may_wait](PoolFixture& f) {
            Block* const block = f.alloc(kLarge);
            f.use(block, 1);
            f.free(block);
            f.alloc(5 * kMiB); // a barrier: the block moves to the heap, settled but not finished
            f.pool->enter_finished(may_wait);
            f.alloc(kLarge);
        };
        CHECK_FALSE(harmed({}, OrderLevel::fenced, program));
        CHECK(harmed({Rule::transition_sync}, OrderLevel::fenced, program));
    }
}
