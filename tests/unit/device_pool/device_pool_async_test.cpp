#include "core/device_pool.h"

#include "pool_fixture.h"
#include "tests/unit/order/rules_off.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

constexpr std::uint64_t kLarge = 3 * kMiB; ///< a segment of 4 MiB of its own
constexpr std::size_t kReader = 0, kWriter = 1, kThird = 2;

Options no_slack() {
    Options options = pool_options();
    options.slack_mb = 0;
    options.slack_percent = 0;
    return options;
}

/// A block of kReader that its pending work uses, freed behind that.
Block* freed_in_use(PoolFixture& f, std::uint64_t bytes = kLarge) {
    Block* const block = f.alloc_on(kReader, bytes);
    f.use(block, kReader);
    REQUIRE(f.free_on(kReader, block).status == PoolStatus::done);
    return block;
}

} // namespace

TEST_CASE("DevicePool async: a stream gets its own block back at once") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const older = f.alloc_on(kReader, kLarge);
    Block* const newer = f.alloc_on(kReader, kLarge);
    f.use(older, kReader);
    f.use(newer, kReader);
    f.free_on(kReader, older);
    f.free_on(kReader, newer);
    CHECK(f.alloc_on(kReader, kLarge) == newer);
    CHECK(f.alloc_on(kReader, kLarge) == older);
    CHECK(f.device.queries == 0);
    CHECK(f.device.stream_waits == 0);
    CHECK(f.device.records == 0); // no fences either
    const PoolStatistics now = f.pool->statistics();
    CHECK(now.async_allocations == 4);
    CHECK(now.async_frees == 2);
    CHECK(now.stream_hits == 2);
    CHECK(now.thread_hits == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: others get it when it is done, and grow until then") {
    const bool plain = GENERATE(true, false);
    PoolFixture f(OrderLevel::fenced, no_slack());
    const auto next = [&] { return plain ? f.alloc(kLarge) : f.alloc_on(kWriter, kLarge); };
    Block* const block = freed_in_use(f);
    CHECK(next() != block);
    f.device.finish_all();
    CHECK(next() == block);
    CHECK(f.device.stream_waits == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: the program may forbid to take what is done") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    f.reuse_finished = false;
    Block* const block = freed_in_use(f);
    f.device.finish_all();
    CHECK(f.alloc_on(kWriter, kLarge) != block);
    CHECK(f.alloc_on(kReader, kLarge) == block);
}

TEST_CASE("DevicePool async: without other memory a stream waits, alone and on the device") {
    PoolFixture f(OrderLevel::fenced, no_slack(), 4 * kMiB);
    Block* const block = freed_in_use(f);
    CHECK(f.alloc(kLarge) == nullptr); // a classic call does not
    CHECK(f.status == PoolStatus::out_of_memory);
    CHECK(f.alloc_on(kWriter, kLarge) == block);
    CHECK(f.device.stream_waits == 1);
    CHECK(f.device.waits == 0);
    CHECK(f.device.pauses == 0);
    CHECK(f.pool->statistics().stream_waits == 1);
    // Who frees it passes on what it was made to wait for.
    f.free_on(kWriter, block);
    CHECK(f.alloc_on(kThird, kLarge) == block);
    CHECK(f.device.stream_waits == 2);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: where it may not wait on the device it does on the host") {
    PoolFixture f(OrderLevel::fenced, no_slack(), 4 * kMiB);
    f.reuse_waiting = false;
    Block* const block = freed_in_use(f);
    CHECK(f.alloc_on(kWriter, kLarge) == block);
    CHECK(f.device.stream_waits == 0);
    CHECK(f.device.pauses > 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: memory of other sizes is waited for on the host") {
    PoolFixture f(OrderLevel::fenced, no_slack(), 8 * kMiB);
    for (Block* block : {f.alloc_on(kReader, kLarge), f.alloc_on(kReader, kLarge)}) {
        f.use(block, kReader);
        f.free_on(kReader, block);
    }
    CHECK(f.alloc(7 * kMiB) == nullptr);
    CHECK(f.alloc_on(kWriter, 7 * kMiB) != nullptr);
    CHECK(f.device.pauses > 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: what a classic call freed, behind a wait of the stream") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block, kReader);
    f.free(block);
    f.device.several = true;
    CHECK(f.alloc_on(kWriter, kLarge) == block);
    CHECK(f.device.stream_waits == 1);
    CHECK(f.device.waits == 0);
    CHECK(f.first_complaint().empty());
    // Freed by cudaFree, as natively without a wait: nothing may be put behind it.
    f.use(block, kWriter);
    f.free(block, FreeKind::waits_on_host);
    CHECK(f.device.pauses == 0);
    CHECK(f.alloc_on(kThird, kLarge) != block);
    CHECK(f.device.stream_waits == 1);
}

TEST_CASE("DevicePool async: growth comes before a wait while slack is left") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc(kLarge);
    f.use(block, kReader);
    f.free(block);
    CHECK(f.alloc_on(kWriter, kLarge) != block);
    CHECK(f.device.stream_waits == 0);
}

TEST_CASE("DevicePool async: only at levels ordered and fenced") {
    for (const OrderLevel level : {OrderLevel::finished, OrderLevel::wait}) {
        PoolFixture f(level);
        CHECK(f.alloc_on(kReader, kLarge) == nullptr);
        CHECK(f.status == PoolStatus::pass_through);
        Block* const block = f.alloc(kLarge); // but what classic calls got may be freed that way
        f.use(block, kReader);
        CHECK(f.free_on(kReader, block).status == PoolStatus::done);
        CHECK(f.alloc(kLarge) != block);
        f.device.finish_all();
        CHECK(f.alloc(kLarge) == block);
        CHECK(f.first_complaint().empty());
    }
    PoolFixture f(OrderLevel::ordered);
    Block* const block = freed_in_use(f);
    CHECK(f.device.stream_records == 0);
    CHECK(f.alloc_on(kWriter, kLarge) == block);
    f.free_on(kWriter, block);
    CHECK(f.alloc(kLarge) == block);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: no more events than there are") {
    PoolFixture f(OrderLevel::fenced);
    std::vector<Block*> blocks;
    for (std::uint32_t i = 0; i < StreamEvents::kEvents + 10; ++i)
        blocks.push_back(f.alloc(512));
    f.use(blocks.front(), kReader);
    for (Block* block : blocks)
        REQUIRE(f.free_on(kReader, block).status == PoolStatus::done);
    CHECK(f.device.stream_records == StreamEvents::kEvents);
    CHECK(f.pool->statistics().fences == 10);
    CHECK(f.first_complaint().empty());
    CHECK(f.wind_up() == 0);
}

TEST_CASE("DevicePool async: frees that fail") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const block = f.alloc_on(kReader, kLarge);
    f.device.fail_at = f.device.calls + 1;
    const PoolResult failed = f.free_on(kReader, block);
    CHECK(failed.status == PoolStatus::failed);
    CHECK(failed.native == 999);
    CHECK(block->state.load() == BlockState::live);
    CHECK(f.pool->async_memory().used == block->size);
    f.device.capture_open = true; // nothing may be recorded
    CHECK(f.free_on(kReader, block).status == PoolStatus::done);
    CHECK(block->state.load() == BlockState::aside);
    CHECK(f.pool->async_memory().used == 0);
    CHECK(f.pool->free_async(block, block->address, f.named(kReader)).status ==
          PoolStatus::not_live);
    f.device.capture_open = false;
    CHECK(f.wind_up() == 0);
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: a free that fails gives its event back") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc_on(kReader, kLarge);
    for (std::uint32_t i = 0; i < StreamEvents::kEvents; ++i) {
        f.device.fail_at = f.device.calls + 1;
        REQUIRE(f.free_on(kReader, block).status == PoolStatus::failed);
    }
    REQUIRE(f.free_on(kReader, block).status == PoolStatus::done);
    CHECK(f.device.stream_records == 1);
}

TEST_CASE("DevicePool async: a wait that fails hands nothing out") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const block = f.alloc(kLarge);
    f.use(block, kReader);
    f.free(block);
    f.device.capture_open = true;
    Block* const next = f.alloc_on(kWriter, kLarge);
    CHECK(next != block);
    f.device.capture_open = false;
    CHECK(f.alloc_on(kWriter, kLarge) == block); // it is still in limbo
    CHECK(f.first_complaint().empty());
}

TEST_CASE("DevicePool async: a lost context serves no more") {
    PoolFixture f(OrderLevel::fenced);
    Block* const block = f.alloc_on(kReader, kLarge);
    f.device.order_failure_status = OrderStatus::lost;
    f.device.fail_at = f.device.calls + 1;
    CHECK(f.free_on(kReader, block).status == PoolStatus::failed);
    CHECK(f.alloc_on(kReader, kLarge) == nullptr);
    CHECK(f.status == PoolStatus::pass_through);
}

TEST_CASE("DevicePool async: figures") {
    PoolFixture f(OrderLevel::fenced);
    Block* const plain = f.alloc(kLarge);
    Block* const first = f.alloc_on(kReader, kLarge);
    CHECK(f.pool->served_async());
    CHECK(f.pool->async_memory().used == kLarge);
    CHECK(f.pool->async_memory().reserved == f.device.held() - kLarge);
    f.free_on(kReader, first);
    CHECK(f.pool->async_memory().used == 0);
    CHECK(f.pool->async_memory().used_peak == kLarge);
    CHECK(f.pool->wholly_free_bytes() == 4 * kMiB); // it is done
    f.pool->reset_used_peak();
    CHECK(f.pool->async_memory().used_peak == 0);
    CHECK(f.pool->trim_to(100 * kMiB) == 0);
    CHECK(f.pool->trim_to(0) == 4 * kMiB);
    CHECK(f.pool->async_memory().reserved == f.device.held() - kLarge);
    CHECK(f.pool->async_memory().reserved_peak >= 4 * kMiB);
    f.pool->reset_reserved_peak();
    CHECK(f.pool->async_memory().reserved_peak == f.device.held() - kLarge);
    f.free(plain);
}

TEST_CASE("DevicePool async: memory on its way is not free yet") {
    PoolFixture f(OrderLevel::fenced);
    freed_in_use(f);
    CHECK(f.pool->wholly_free_bytes() == 0);
    f.device.finish_all();
    CHECK(f.pool->wholly_free_bytes() == 4 * kMiB);
}

TEST_CASE("DevicePool rules: stream_event") {
    for (const bool plain : {true, false}) {
        for (const bool off : {true, false}) {
            const RulesOff rules(off ? std::initializer_list<Rule>{Rule::stream_event}
                                     : std::initializer_list<Rule>{});
            PoolFixture f(OrderLevel::fenced, no_slack());
            freed_in_use(f);
            if (plain) {
                f.alloc(kLarge);
            } else {
                f.alloc_on(kWriter, kLarge);
            }
            CHECK(f.first_complaint().empty() == !off);
        }
    }
}

TEST_CASE("DevicePool async: random programs") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (int program = 0; program < 60; ++program) {
        const bool scarce = random() % 2 == 0;
        PoolFixture f(OrderLevel::fenced, random() % 2 == 0 ? no_slack() : pool_options(),
                      scarce ? 24 * kMiB : kGiB, random());
        f.device.several = random() % 2 == 0;
        f.reuse_finished = random() % 4 != 0;
        f.reuse_waiting = random() % 4 != 0;
        struct Live {
            Block* block;
            std::size_t stream; ///< of its allocation and its work; kStreams: a classic one
        };
        std::vector<Live> live;
        for (int step = 0; step < 300; ++step) {
            const std::size_t stream = random() % SimulatedDevice::kStreams;
            const std::uint64_t bytes = (1 + random() % 4) * (random() % 2 == 0 ? 512 : kMiB);
            switch (random() % 6) {
            case 0:
            case 1:
                if (Block* const block = f.alloc_on(stream, bytes)) {
                    f.use(block, stream);
                    live.push_back({block, stream});
                }
                break;
            case 2:
                if (Block* const block = f.alloc(bytes)) {
                    f.use(block, stream);
                    live.push_back({block, stream});
                }
                break;
            case 3:
            case 4:
                if (live.empty()) break;
                std::swap(live[random() % live.size()], live.back());
                if (random() % 3 != 0) {
                    REQUIRE(f.free_on(live.back().stream, live.back().block).status ==
                            PoolStatus::done);
                } else {
                    const bool classic = !live.back().block->asynchronous;
                    REQUIRE(f.free(live.back().block,
                                   classic ? FreeKind::waits_unnoticed : FreeKind::does_not_wait)
                                .status == PoolStatus::done);
                }
                live.pop_back();
                break;
            default:
                f.device.advance(static_cast<int>(random() % 4));
            }
            CAPTURE(program, step);
            REQUIRE(f.first_complaint().empty());
        }
        for (const Live& one : live)
            f.free_on(one.stream, one.block);
        REQUIRE(f.wind_up() == 0);
        REQUIRE(f.first_complaint().empty());
    }
}

TEST_CASE("DevicePool async: threads with streams of their own and one another's") {
    PoolFixture f(OrderLevel::fenced, no_slack(), 64 * kMiB);
    f.device.several = true;
    std::atomic<int> failures{0};
    std::vector<std::thread> threads(SimulatedDevice::kStreams);
    for (std::size_t mine = 0; mine < threads.size(); ++mine) {
        threads[mine] = std::thread([&, mine] {
            std::mt19937_64 random(mine);
            for (int round = 0; round < 400; ++round) {
                const bool classic = random() % 4 == 0;
                const std::uint64_t bytes = (1 + random() % 3) * (random() % 2 == 0 ? 512 : kMiB);
                const PoolResult result = classic ? f.pool->allocate(bytes)
                                                  : f.pool->allocate_async(bytes, f.named(mine));
                Block* const block = f.map->find(result.address);
                if (result.status != PoolStatus::done || block == nullptr) {
                    ++failures;
                    continue;
                }
                f.ledger.handed_out(*block);
                if (classic) {
                    f.device.handed_out(block->address, block->size, false);
                } else {
                    f.device.handed_out_to(mine, block->address, block->size);
                }
                f.device.submit(mine, block->address, block->size);
                const bool classic_free = random() % 4 == 0;
                const bool waits = classic_free && classic;
                f.device.given_up(block->address, block->size, !waits);
                const PoolResult freed =
                    classic_free ? f.pool->free(block, block->address, FreeKind::waits_unnoticed)
                                 : f.pool->free_async(block, block->address, f.named(mine));
                if (freed.status != PoolStatus::done) ++failures;
                f.device.advance(1);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(failures == 0);
    CHECK(f.first_complaint().empty());
    CHECK(f.pool->async_memory().used == 0);
    CHECK(f.wind_up() == 0);
}
