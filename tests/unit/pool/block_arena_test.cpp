#include "core/pool/block_arena.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <thread>
#include <vector>

using namespace cachealloc;

TEST_CASE("BlockArena: an index names its descriptor, 0 is none") {
    const auto arena = std::make_unique<BlockArena>();
    std::set<std::uint32_t> indices;
    for (int i = 0; i < 10000; ++i) {
        Block* const block = arena->make();
        REQUIRE(block != nullptr);
        REQUIRE(block->index != 0);
        REQUIRE(arena->at(block->index) == block);
        REQUIRE(block->state.load() == BlockState::unused);
        REQUIRE(indices.insert(block->index).second);
    }
}

TEST_CASE("BlockArena: a recycled descriptor comes back clean, its generation goes on") {
    const auto arena = std::make_unique<BlockArena>();
    Block* const block = arena->make();
    Block* const other = arena->make();
    const std::uint32_t index = block->index;
    block->state.store(BlockState::live);
    block->generation = 7;
    block->stamp = 99;
    block->barrier_counts = false;
    block->previous = other;
    block->next = other;
    arena->recycle(block);
    CHECK(block->state.load() == BlockState::unused);
    Block* const again = arena->make();
    REQUIRE(again == block); // newest first: its cache lines are warm
    CHECK(again->index == index);
    CHECK(again->stamp == 0);
    CHECK(again->barrier_counts);
    CHECK(again->previous == nullptr);
    CHECK(again->next == nullptr);
    CHECK(again->link == nullptr);
    CHECK(again->generation == 7); // buffer ids stay unique
}

TEST_CASE("BlockArena: threads never get the same descriptor") {
    const auto arena = std::make_unique<BlockArena>();
    std::atomic<int> clashes{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            std::vector<Block*> mine;
            for (int round = 0; round < 200; ++round) {
                for (int i = 0; i < 50; ++i) {
                    Block* const block = arena->make();
                    if (block->state.exchange(BlockState::live) != BlockState::unused) ++clashes;
                    mine.push_back(block);
                }
                while (mine.size() > 10) {
                    arena->recycle(mine.back());
                    mine.pop_back();
                }
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(clashes.load() == 0);
}
