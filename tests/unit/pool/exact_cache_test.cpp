#include "core/pool/exact_cache.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

struct Fixture {
    std::unique_ptr<BlockArena> arena = std::make_unique<BlockArena>();
    std::unique_ptr<ExactCache> cache;

    explicit Fixture(std::uint64_t budget = kGiB)
        : cache(std::make_unique<ExactCache>(*arena, budget)) {}

    Block* block(std::uint32_t bin, std::uint64_t size = 512) {
        Block* const made = arena->make();
        made->bin = bin;
        made->size = size;
        return made;
    }
    Block* take(std::uint32_t bin) { return cache->take(bin, cache->mine()); }
    Block* put(Block* block) { return cache->put(block, cache->mine()); }
    std::vector<Block*> drain() {
        std::vector<Block*> all;
        cache->drain([&](Block* block) { all.push_back(block); });
        return all;
    }
};

} // namespace

TEST_CASE("ExactCache: newest first, bins apart") {
    Fixture f;
    CHECK(f.take(3) == nullptr);
    std::vector<Block*> blocks;
    for (int i = 0; i < 5; ++i)
        blocks.push_back(f.block(3));
    Block* const other = f.block(4);
    for (Block* block : blocks)
        REQUIRE(f.put(block) == nullptr);
    REQUIRE(f.put(other) == nullptr);
    for (std::size_t i = blocks.size(); i-- > 0;) {
        CHECK(blocks[i]->state.load() == BlockState::cached);
        CHECK(f.take(3) == blocks[i]);
    }
    CHECK(f.take(3) == nullptr);
    CHECK(f.take(4) == other);
}

TEST_CASE("ExactCache: a block without a bin is not kept") {
    Fixture f;
    Block* const block = f.block(BinIndex::kNone);
    CHECK(f.put(block) == block);
    CHECK(f.drain().empty());
}

TEST_CASE("ExactCache: the budget bounds the stacks, the surplus is the older block") {
    Fixture f(3 * kMiB);
    Block* const first = f.block(0, kMiB);
    REQUIRE(f.put(first) == nullptr); // in the thread's slot: not counted
    std::vector<Block*> kept{first};
    for (int i = 0; i < 3; ++i) {
        kept.push_back(f.block(0, kMiB));
        REQUIRE(f.put(kept.back()) == nullptr);
    }
    Block* const newest = f.block(0, kMiB);
    CHECK(f.put(newest) == kept.back()); // three on the stack, the one in the slot had no room
    CHECK(f.take(0) == newest);
    // A block that leaves the stack makes room for another.
    CHECK(f.take(0) == kept[2]);
    REQUIRE(f.put(f.block(0, kMiB)) == nullptr);
    CHECK(f.put(f.block(0, kMiB)) == nullptr);
    // The budget counts bytes over all bins.
    REQUIRE(f.put(f.block(7, 512)) == nullptr);
    Block* const second_of_seven = f.block(7, 512);
    Block* const surplus = f.put(second_of_seven);
    REQUIRE(surplus != nullptr);
    CHECK(surplus->bin == 7);
}

TEST_CASE("ExactCache: with no budget only slots keep blocks") {
    Fixture f(0);
    Block* const first = f.block(0);
    Block* const second = f.block(0);
    CHECK(f.put(first) == nullptr);
    CHECK(f.put(second) == first);
    CHECK(f.take(0) == second);
    CHECK(f.take(0) == nullptr);
}

TEST_CASE("ExactCache: one thread's slot serves another, and counts as shared") {
    Fixture f;
    Block* const block = f.block(5);
    Block* theirs = nullptr;
    std::uint64_t hits = 0;
    REQUIRE(f.put(block) == nullptr);
    std::thread([&] {
        theirs = f.take(5);
        hits = f.cache->mine().get(kSmallClass, Counter::shared_hits);
    }).join();
    CHECK(theirs == block);
    CHECK(hits == 1);
    CHECK(f.cache->total(Counter::shared_hits) == 1);
    CHECK(f.take(5) == nullptr);
}

TEST_CASE("ExactCache: what a thread left behind at its end is found") {
    Fixture f;
    Block* const first = f.block(5);
    Block* const second = f.block(5);
    std::thread([&] {
        if (f.put(first) != nullptr || f.put(second) != nullptr) std::terminate();
        f.cache->mine().add(kSmallClass, Counter::frees, 2);
    }).join();
    const std::set<Block*> both{f.take(5), f.take(5)};
    CHECK(both == std::set<Block*>{first, second});
    CHECK(f.cache->total(Counter::frees) == 2);
}

TEST_CASE("ExactCache: drain takes everything out of slots and stacks of all threads") {
    Fixture f;
    std::set<Block*> all;
    for (std::uint32_t bin : {0U, 1U, BinIndex::kSmallBins - 1, BinIndex::kBins - 1}) {
        for (int i = 0; i < 3; ++i) {
            Block* const block = f.block(bin);
            all.insert(block);
            REQUIRE(f.put(block) == nullptr);
        }
    }
    Block* const theirs = f.block(9);
    all.insert(theirs);
    std::thread([&] {
        if (f.put(theirs) != nullptr) std::terminate();
    }).join();
    const std::vector<Block*> drained = f.drain();
    CHECK(drained.size() == all.size());
    CHECK(std::set<Block*>(drained.begin(), drained.end()) == all);
    CHECK(f.drain().empty());
    // The budget is whole again.
    Fixture g(512);
    for (int round = 0; round < 3; ++round) {
        REQUIRE(g.put(g.block(0)) == nullptr);
        REQUIRE(g.put(g.block(0)) == nullptr);
        CHECK(g.drain().size() == 2);
    }
}

TEST_CASE("ExactCache: no block is ever lost or owned twice while threads swap and drain") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    constexpr std::uint32_t kBins = 2;
    constexpr int kBlocks = 24;
    constexpr int kWorkers = 4;
    Fixture f;
    // One owner flag a block, kept outside the descriptor: whoever takes a block raises it.
    std::vector<std::atomic<int>> owned(kBlocks * 2 + 16);
    std::atomic<int> twice{0};
    std::vector<Block*> blocks;
    for (int i = 0; i < kBlocks; ++i) {
        Block* const block = f.block(static_cast<std::uint32_t>(i) % kBins);
        blocks.push_back(block);
        REQUIRE(block->index < owned.size());
        REQUIRE(f.put(block) == nullptr);
    }
    const auto own = [&](Block* block) {
        if (owned[block->index].fetch_add(1, std::memory_order_relaxed) != 0) ++twice;
        block->stamp += 1; // a plain write: a second owner would be a data race
    };
    const auto give = [&](Block* block) {
        owned[block->index].fetch_sub(1, std::memory_order_relaxed);
        if (f.put(block) != nullptr) ++twice; // the budget is never spent here
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < kWorkers; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(seed + static_cast<unsigned>(t));
            std::vector<Block*> mine;
            for (int i = 0; i < 30000; ++i) {
                if (random() % 2 == 0) {
                    if (Block* const block = f.take(static_cast<std::uint32_t>(random() % kBins))) {
                        own(block);
                        mine.push_back(block);
                    }
                } else if (!mine.empty()) {
                    give(mine.back());
                    mine.pop_back();
                }
                if (random() % 2000 == 0) {
                    for (Block* block : f.drain()) {
                        own(block);
                        mine.push_back(block);
                    }
                }
                if (mine.size() > 6) {
                    for (Block* block : mine)
                        give(block);
                    mine.clear();
                }
            }
            for (Block* block : mine)
                give(block);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(twice.load() == 0);
    const std::vector<Block*> left = f.drain();
    CHECK(left.size() == blocks.size());
    CHECK(std::set<Block*>(left.begin(), left.end()) ==
          std::set<Block*>(blocks.begin(), blocks.end()));
}

TEST_CASE("ExactCache: a head that went away and came back is not taken for the same stack") {
    // Two threads take three blocks each of one short stack and put them back in another order.
    Fixture f;
    constexpr std::size_t kBlocks = 8;
    std::vector<std::atomic<int>> owned(64);
    std::atomic<int> twice{0};
    for (std::size_t i = 0; i < kBlocks; ++i) {
        Block* const block = f.block(0);
        REQUIRE(block->index < owned.size());
        REQUIRE(f.put(block) == nullptr);
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&] {
            ThreadCache& mine = f.cache->mine();
            for (int i = 0; i < 300000 && twice.load() == 0; ++i) {
                std::array<Block*, 3> held{};
                for (Block*& block : held) {
                    block = f.cache->take(0, mine);
                    if (block != nullptr && owned[block->index].exchange(1) != 0) ++twice;
                }
                for (Block* const block : {held[1], held[2], held[0]}) {
                    if (block == nullptr) continue;
                    owned[block->index].store(0);
                    if (f.cache->put(block, mine) != nullptr) ++twice;
                }
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    REQUIRE(twice.load() == 0); // a stack that was damaged may be a ring
    CHECK(f.drain().size() == kBlocks);
}

TEST_CASE("ExactCache: counters add up over threads") {
    Fixture f;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&] {
            ThreadCache& mine = f.cache->mine();
            for (int i = 0; i < 1000; ++i)
                mine.add(kSmallClass, Counter::allocated_bytes, 3);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(f.cache->total(Counter::allocated_bytes) == 24000);
    CHECK(f.cache->total(Counter::frees) == 0);
    CHECK(f.cache->threads() >= 1);
    CHECK(f.cache->threads() <= 8);
}

TEST_CASE("ExactCache: threads without an index of their own lose no count") {
    const auto arena = std::make_unique<BlockArena>();
    ThreadCache shared;
    shared.shared = true;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 10000; ++i)
                shared.add(kSmallClass, Counter::allocations, 1);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(shared.get(kSmallClass, Counter::allocations) == 40000);
}
