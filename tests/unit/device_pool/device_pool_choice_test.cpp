#include "core/choice.h"

#include "pool_fixture.h"

using namespace cachealloc;

namespace {

/// Puts another number in the place of kYoungerFences for a scope.
class Choice {
  public:
    explicit Choice(std::uint64_t younger) { g_younger_fences = younger; }
    ~Choice() { g_younger_fences = kYoungerFences; }
    Choice(const Choice&) = delete;
    Choice& operator=(const Choice&) = delete;
};

Options no_slack() {
    Options options = pool_options();
    options.slack_mb = 0;
    options.slack_percent = 0;
    return options;
}

void run(PoolFixture& f) {
    constexpr std::uint64_t kBytes = 4 * kMiB;
    for (std::size_t i = 0; i < 24; ++i) {
        Block* const block = f.alloc(kBytes);
        REQUIRE(block != nullptr);
        f.use(block, i % 4);
        f.free(block);
    }
    CHECK(f.first_complaint().empty());
}

} // namespace

TEST_CASE("DevicePool choice: what a benchmark compares is one rule alone") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    f.device.several = GENERATE(false, true);
    SECTION("the host waits and nothing else") {
        const Choice choice(0);
        run(f);
        CHECK(f.pool->statistics().barriers == 0);
        CHECK(f.pool->statistics().host_waits > 0);
    }
    SECTION("barriers and nothing else") {
        const Choice choice(~std::uint64_t{0});
        run(f);
        CHECK(f.pool->statistics().barriers > 0);
        CHECK(f.pool->statistics().host_waits == 0);
    }
}

TEST_CASE("DevicePool choice: growth alone, with a slack without end") {
    Options options = no_slack();
    options.slack_mb = 1 << 20;
    PoolFixture f(OrderLevel::fenced, options);
    f.device.several = GENERATE(false, true);
    const Choice choice(0);
    run(f);
    CHECK(f.pool->statistics().reserved_bytes >= 24 * 4 * kMiB);
    CHECK(f.pool->statistics().barriers + f.pool->statistics().host_waits == 0);
}
