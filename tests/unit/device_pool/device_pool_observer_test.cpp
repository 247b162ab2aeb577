// What a pool tells its observer: the ledger of the fixture checks the order in every test of the
// pool, here are the cases in which it is not obvious what is to be said.
#include "core/device_pool.h"

#include "pool_fixture.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace cachealloc;

namespace {

constexpr std::uint64_t kLarge = 4 * kMiB;

Options no_slack() {
    Options options = pool_options();
    options.slack_mb = options.slack_percent = 0;
    return options;
}

} // namespace

TEST_CASE("DevicePool observer: a free without order is settled at once") {
    PoolFixture f(OrderLevel::ordered);
    Block* const block = f.alloc(kLarge);
    CHECK(f.ledger.segment_bytes() == f.device.held());
    f.free(block);
    CHECK(f.ledger.blocks() == 0);
    CHECK(f.ledger.settled_later() == 0);
}

TEST_CASE("DevicePool observer: a fenced free is settled when it is reused") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block);
    f.free(block);
    CHECK(f.ledger.blocks() == 1);
    CHECK(f.alloc(kLarge) == block);
    CHECK(f.ledger.settled_later() == 1);
    CHECK(f.ledger.blocks() == 1); // live again
}

TEST_CASE("DevicePool observer: the wait of a free settles it") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    const FreeKind kind = GENERATE(FreeKind::waits_on_device, FreeKind::waits_on_host);
    Block* const block = f.alloc(kLarge);
    f.use(block);
    f.free(block, kind);
    CHECK(f.ledger.blocks() == 0);
    CHECK(f.ledger.settled_later() == 0);
}

TEST_CASE("DevicePool observer: a refused free is not told") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc(kLarge);
    f.device.fail_at = f.device.calls + 1;
    CHECK(f.free(block).status == PoolStatus::failed);
    CHECK(f.ledger.frees() == 0);
    CHECK(f.free(block).status == PoolStatus::done);
    CHECK(f.ledger.frees() == 1);
    CHECK(f.free(block).status == PoolStatus::not_live);
    CHECK(f.ledger.frees() == 1);
}

TEST_CASE("DevicePool observer: a segment that is not taken back is the pool's again") {
    PoolFixture f(OrderLevel::ordered);
    f.free(f.alloc(kLarge));
    f.device.fail_at = f.device.calls + 1;
    CHECK(f.pool->trim() == 0);
    CHECK(f.ledger.segment_bytes() == kLarge);
    CHECK(f.pool->trim() == kLarge);
    CHECK(f.ledger.segment_bytes() == 0);
}

TEST_CASE("DevicePool observer: everything of a buried pool ends") {
    const std::uint64_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    PoolFixture f(OrderLevel::fenced);
    std::vector<Block*> held;
    for (int step = 0; step < 300; ++step) {
        if (held.empty() || random() % 3 != 0) {
            const std::size_t stream = random() % SimulatedDevice::kStreams;
            const std::uint64_t bytes = 1 + random() % (2 * kMiB);
            Block* const block = random() % 2 == 0 ? f.alloc(bytes) : f.alloc_on(stream, bytes);
            REQUIRE(block != nullptr);
            f.use(block, stream);
            held.push_back(block);
            continue;
        }
        Block* const block = held.back();
        held.pop_back();
        switch (random() % 3) {
        case 0:
            f.free(block);
            break;
        case 1:
            f.free_on(random() % SimulatedDevice::kStreams, block);
            break;
        default:
            f.set_aside(block);
            break;
        }
    }
    f.pool->kill();
    f.pool->bury();
    CHECK(f.ledger.blocks() == 0);
    CHECK(f.ledger.segment_bytes() == 0);
}
