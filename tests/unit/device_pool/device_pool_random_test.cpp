// Random programs on the simulated device, alone and by many threads, against the oracle and a
// model of the statistics. Seeds are printed when a check fails.
#include "core/device_pool.h"

#include "pool_fixture.h"
#include "tests/unit/order/rules_off.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

constexpr std::uint64_t kMemory = 96 * kMiB;

struct Scene {
    OrderLevel level;
    FreeMode mode;
    bool tight; ///< no slack: order rather than grow
};

/// Sizes as programs have them: few distinct ones, mostly small.
std::uint64_t random_size(std::mt19937_64& random) {
    static constexpr std::uint64_t kSizes[] = {1,        512,      700,      4096,
                                               65536,    kMiB,     kMiB + 1, 2 * kMiB,
                                               3 * kMiB, 5 * kMiB, 8 * kMiB, 12 * kMiB};
    if (random() % 8 == 0) return 1 + random() % (6 * kMiB);
    return kSizes[random() % 12];
}

Options options_of(const Scene& scene, std::mt19937_64& random) {
    Options options = pool_options(scene.mode);
    if (scene.tight) options.slack_mb = options.slack_percent = 0;
    options.cache_mb = random() % 3 == 0 ? random() % 16 : 1024;
    if (random() % 2 == 0) options.large_segment_size_mb = Options{}.large_segment_size_mb;
    if (random() % 4 == 0) options.max_split_size_mb = 4;
    if (random() % 2 == 0) options.max_non_split_rounding_mb = random() % 4;
    if (random() % 4 == 0) {
        options.per_process_memory_fraction = Fraction{Fraction::kOne / 4 * 3};
        options.throw_on_cudamalloc_oom = random() % 2 == 0;
        if (random() % 2 == 0) options.garbage_collection_threshold = Fraction{Fraction::kOne / 2};
    }
    if (random() % 4 == 0) options.roundup_power2_divisions.fill(4);
    options.expandable_segments = random() % 2 == 0;
    return options;
}

/// What the statistics must say.
struct Model {
    std::uint64_t allocations = 0;
    std::uint64_t frees = 0;
    std::uint64_t bytes = 0;
    std::uint64_t requested = 0;
    std::uint64_t peak = 0;
    std::uint64_t refused = 0; ///< out_of_memory answers
    std::uint64_t asides = 0;
};

void check_statistics(PoolFixture& f, const Model& model) {
    const PoolStatistics s = f.pool->statistics();
    REQUIRE(s.allocations == model.allocations);
    REQUIRE(s.frees == model.frees);
    REQUIRE(s.allocated_bytes == model.bytes);
    REQUIRE(s.requested_bytes == model.requested);
    REQUIRE(s.allocated_bytes_peak == model.peak);
    REQUIRE(s.reserved_bytes == f.device.held());
    REQUIRE(f.ledger.segment_bytes() == f.device.held());
    REQUIRE(f.ledger.frees() == model.frees);
    REQUIRE(s.reserved_bytes_peak == f.device.held_peak());
    REQUIRE(s.cached_bytes == f.device.held() - model.bytes);
    REQUIRE(s.segment_allocs - s.segment_frees == f.device.segments());
    const bool grown = s.pieces_mapped != 0 && s.segments > f.device.segments();
    REQUIRE(s.segments == f.device.segments() + (grown ? 1 : 0));
    REQUIRE(s.thread_hits + s.shared_hits + s.limbo_hits + s.tree_hits + s.segment_allocs +
                s.growths + s.stitches_made ==
            s.allocations);
    REQUIRE(s.stitches_made - s.stitches_ended == f.device.aliases());
    REQUIRE(s.thread_hits <= s.allocations); // the difference never went below zero
    REQUIRE(s.out_of_memory == model.refused);
    REQUIRE(s.set_aside >= model.asides);
    REQUIRE(s.largest_free_bytes <= s.cached_bytes);
    REQUIRE(f.pool->wholly_free_bytes() <= s.cached_bytes);
}

/// One program by one thread. REQUIREs all along; returns the number of allocations served.
std::uint64_t run_program(std::uint64_t seed, const Scene& scene, int steps) {
    std::mt19937_64 random(seed);
    PoolFixture f(scene.level, options_of(scene, random), kMemory, seed + 1);
    std::size_t streams = scene.level == OrderLevel::ordered ? 1 : SimulatedDevice::kStreams;
    f.device.several = random() % 2 == 0;
    std::vector<Block*> held;
    Model model;
    const auto gone = [&](Block* block) {
        ++model.frees;
        model.bytes -= block->size;
        model.requested -= block->requested.load();
    };
    const int step_down = scene.level < OrderLevel::finished && random() % 2 == 0
                              ? static_cast<int>(random() % static_cast<unsigned>(steps))
                              : -1;
    for (int step = 0; step < steps; ++step) {
        CAPTURE(step);
        if (step == step_down) {
            f.pool->enter_finished(random() % 2 == 0);
            f.device.one_stream_ = false;
            streams = SimulatedDevice::kStreams;
        }
        const std::uint64_t kind = random() % 100;
        if (kind < 36) {
            const std::uint64_t bytes = random_size(random);
            if (Block* const block = f.alloc(bytes)) {
                REQUIRE(block->size >= bytes);
                REQUIRE(block->address % kBlockAlignment == 0);
                REQUIRE(block->requested.load() == bytes);
                REQUIRE(f.map->find_containing(block->address + bytes - 1) == block);
                held.push_back(block);
                ++model.allocations;
                model.bytes += block->size;
                model.requested += bytes;
                model.peak = std::max(model.peak, model.bytes);
            } else if (f.status == PoolStatus::out_of_memory ||
                       f.status == PoolStatus::over_limit) {
                ++model.refused;
            } else {
                REQUIRE(f.status == PoolStatus::pass_through);
                REQUIRE(step_down >= 0); // only while what was cached is held back
            }
        } else if (kind < 60 && !held.empty()) {
            f.use(held[random() % held.size()], random() % streams);
        } else if (kind < 88 && !held.empty()) {
            const std::size_t at = random() % held.size();
            Block* const block = held[at];
            held[at] = held.back();
            held.pop_back();
            gone(block);
            if (f.device.capture_open && random() % 2 == 0) {
                ++model.asides;
                REQUIRE(f.set_aside(block).status == PoolStatus::done);
            } else {
                static constexpr FreeKind kHow[] = {
                    FreeKind::waits_unnoticed, FreeKind::waits_unnoticed, FreeKind::waits_on_device,
                    FreeKind::does_not_wait};
                const FreeKind how = kHow[random() % 4];
                REQUIRE(f.free(block, how).status == PoolStatus::done);
            }
        } else if (kind < 94) {
            f.device.advance(static_cast<int>(random() % 12));
        } else if (kind == 94) {
            f.device.several = !f.device.several;
        } else if (kind == 95 && scene.level != OrderLevel::wait && scene.mode == FreeMode::async) {
            f.device.capture_open = !f.device.capture_open;
            if (!f.device.capture_open) f.pool->captures_ended();
        } else if (kind == 96 && random() % 4 == 0) {
            f.pool->trim();
        }
        if (step % 16 == 0) check_statistics(f, model);
        REQUIRE(f.first_complaint() == "");
    }
    f.device.capture_open = false;
    for (Block* block : held) {
        gone(block);
        REQUIRE(f.free(block).status == PoolStatus::done);
    }
    REQUIRE(f.wind_up() == 0);
    check_statistics(f, model);
    REQUIRE(f.ledger.blocks() == 0);
    return model.allocations;
}

const Scene kScenes[] = {
    {OrderLevel::ordered, FreeMode::async, false}, {OrderLevel::fenced, FreeMode::async, false},
    {OrderLevel::fenced, FreeMode::async, true},   {OrderLevel::fenced, FreeMode::sync, true},
    {OrderLevel::finished, FreeMode::async, true}, {OrderLevel::finished, FreeMode::sync, false},
    {OrderLevel::wait, FreeMode::async, true},     {OrderLevel::wait, FreeMode::sync, false},
};

} // namespace

TEST_CASE("DevicePool random: programs of one thread") {
    const std::uint64_t first_seed = std::random_device{}();
    constexpr std::uint64_t kPrograms = 320;
    std::uint64_t served = 0;
    for (std::uint64_t i = 0; i < kPrograms; ++i) {
        const std::uint64_t seed = first_seed + i;
        const Scene& scene = kScenes[i % std::size(kScenes)];
        CAPTURE(seed, static_cast<int>(scene.level), static_cast<int>(scene.mode), scene.tight);
        served += run_program(seed, scene, 600);
    }
    // Of the programs together: one alone can spend most of its steps beside an open capture.
    CAPTURE(first_seed);
    REQUIRE(served > 60 * kPrograms);
}

TEST_CASE("DevicePool random: programs see what the rules are for") {
    const Rule rule = GENERATE(Rule::fence, Rule::barrier, Rule::finished_only);
    CAPTURE(static_cast<int>(rule));
    const RulesOff off{rule};
    int harmed = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) { // fixed: one of twenty must be enough
        std::mt19937_64 random(seed);
        const Scene scene{OrderLevel::fenced, FreeMode::async, true};
        PoolFixture f(scene.level, options_of(scene, random), kMemory, seed);
        f.device.several = seed % 2 == 0;
        std::vector<Block*> held;
        for (int step = 0; step < 400; ++step) {
            if (random() % 2 == 0 || held.empty()) {
                Block* const block = f.alloc((1 + random() % 4) * kMiB);
                if (block == nullptr) continue;
                f.use(block, random() % SimulatedDevice::kStreams);
                held.push_back(block);
            } else {
                f.free(held.back(),
                       random() % 2 == 0 ? FreeKind::waits_unnoticed : FreeKind::does_not_wait);
                held.pop_back();
            }
            if (random() % 4 == 0) f.device.advance(2);
        }
        if (!f.first_complaint().empty()) ++harmed;
    }
    CHECK(harmed > 0);
}

namespace {

/// Many threads with blocks of their own and of each other, on one pool. Returns the first
/// complaint.
std::string run_threads(std::uint64_t seed, const Scene& scene, int steps) {
    std::mt19937_64 setup(seed);
    PoolFixture f(scene.level, options_of(scene, setup), kMemory, seed);
    f.device.several = true;
    std::mutex swap_mutex;
    std::vector<Block*> swap; // blocks that one thread leaves for another
    std::atomic<std::uint64_t> allocated{0};
    std::atomic<std::uint64_t> freed{0};
    std::atomic<int> wrong{0};
    std::atomic<bool> stepped_down{scene.level >= OrderLevel::finished};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(seed + 1 + t);
            std::vector<Block*> held;
            const auto give = [&](Block* block) {
                const FreeKind kind =
                    random() % 4 == 0 ? FreeKind::does_not_wait : FreeKind::waits_unnoticed;
                const DeviceAddress address = block->address;
                f.device.given_up(address, block->size, kind == FreeKind::does_not_wait);
                const PoolResult result = f.pool->free(block, address, kind);
                ++(result.status == PoolStatus::done ? freed : allocated);
                if (result.status != PoolStatus::done) ++wrong;
            };
            for (int step = 0; step < steps; ++step) {
                const std::uint64_t kind = random() % 100;
                if (kind < 40) {
                    const std::uint64_t bytes = random_size(random);
                    const bool strict = stepped_down.load();
                    const PoolResult result = f.pool->allocate(bytes);
                    if (result.status == PoolStatus::done) {
                        Block* const block = f.map->find(result.address);
                        if (block == nullptr || block->address != result.address ||
                            block->size < bytes) {
                            ++wrong;
                            continue;
                        }
                        f.ledger.handed_out(*block);
                        f.device.handed_out(block->address, block->size, strict);
                        ++allocated;
                        held.push_back(block);
                    }
                } else if (kind < 55 && !held.empty()) {
                    f.use(held[random() % held.size()],
                          scene.level == OrderLevel::ordered ? 0 : random() % 4);
                } else if (kind < 85 && !held.empty()) {
                    const std::size_t at = random() % held.size();
                    std::swap(held[at], held.back());
                    Block* block = held.back();
                    held.pop_back();
                    if (random() % 3 == 0) {
                        const std::lock_guard lock(swap_mutex);
                        swap.push_back(block);
                        std::swap(swap[random() % swap.size()], swap.back());
                        block = swap.size() > 8 ? swap.back() : nullptr;
                        if (block != nullptr) swap.pop_back();
                    }
                    if (block != nullptr) give(block);
                } else if (kind < 95) {
                    f.device.advance(static_cast<int>(random() % 6));
                } else if (kind == 95 && random() % 8 == 0) {
                    f.pool->trim();
                } else if (kind == 96) {
                    const PoolStatistics statistics = f.pool->statistics();
                    if (statistics.reserved_bytes > kMemory) ++wrong;
                } else if (kind == 97 && step > steps / 2 && random() % 16 == 0) {
                    f.pool->enter_finished(true);
                    stepped_down = true; // from here on somebody may write as he likes
                }
                if (held.size() > 30) {
                    give(held.back());
                    held.pop_back();
                }
            }
            for (Block* block : held)
                give(block);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (Block* block : swap) {
        f.free(block);
        ++freed;
    }
    const PoolStatistics busy = f.pool->statistics();
    REQUIRE(wrong.load() == 0);
    REQUIRE(busy.allocations == allocated.load());
    REQUIRE(busy.frees == freed.load());
    REQUIRE(busy.allocated_bytes == 0);
    REQUIRE(busy.requested_bytes == 0);
    REQUIRE(busy.reserved_bytes == f.device.held());
    REQUIRE(f.wind_up() == 0);
    REQUIRE(f.pool->statistics().segments == 0);
    REQUIRE(f.ledger.blocks() == 0);
    return f.first_complaint();
}

} // namespace

TEST_CASE("DevicePool random: programs of several threads") {
    const std::uint64_t first_seed = std::random_device{}();
    for (std::uint64_t i = 0; i < 3 * std::size(kScenes); ++i) {
        const std::uint64_t seed = first_seed + i;
        CAPTURE(seed, i);
        REQUIRE(run_threads(seed, kScenes[i % std::size(kScenes)], 1500) == "");
    }
}

TEST_CASE("DevicePool random: threads on pools that share one address map") {
    // Addresses that one pool gives back are another pool's a moment later.
    const std::uint64_t seed = std::random_device{}();
    CAPTURE(seed);
    SimulatedDevice device(64 * kMiB, seed);
    const auto map = std::make_unique<AddressMap>();
    const auto arena = std::make_unique<BlockArena>();
    std::vector<std::unique_ptr<DevicePool>> pools;
    device.one_stream_ = true;
    for (int i = 0; i < 3; ++i) {
        pools.push_back(std::make_unique<DevicePool>(*map, *arena, device, device,
                                                     OrderLevel::ordered, pool_options()));
    }
    std::atomic<int> unknown{0};
    std::atomic<int> foreign{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < pools.size(); ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(seed + t);
            DevicePool& pool = *pools[t];
            for (int step = 0; step < 3000; ++step) {
                const PoolResult result = pool.allocate((1 + random() % 3) * 700 * kKiB);
                if (result.status == PoolStatus::done) {
                    Block* const block = map->find(result.address);
                    const Segment* const segment = map->segment_of(result.address);
                    if (segment == nullptr || segment->pool != &pool) ++foreign;
                    if (block == nullptr ||
                        pool.free(block, result.address, FreeKind::waits_unnoticed).status !=
                            PoolStatus::done) {
                        ++unknown;
                    }
                }
                pool.trim();
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(unknown.load() == 0);
    CHECK(foreign.load() == 0);
    CHECK(device.complaints().empty());
    CHECK(device.held() == 0);
}
