#include "core/pool/stream_limbo.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

using namespace cachealloc;

namespace {

struct Fixture {
    std::unique_ptr<StreamLimbo> limbo = std::make_unique<StreamLimbo>();
    std::deque<Block> blocks;

    Block* push(std::uint32_t bin, std::uint64_t stream, std::uint64_t size = 512) {
        Block& block = blocks.emplace_back();
        block.bin = bin;
        block.size = size;
        block.event = static_cast<std::uint32_t>(blocks.size());
        limbo->push(&block, stream);
        return &block;
    }
};

} // namespace

TEST_CASE("StreamLimbo: a stream's newest block of the size comes first") {
    Fixture f;
    Block* const first = f.push(3, 7);
    Block* const second = f.push(3, 7);
    f.push(3, 8);
    f.push(4, 7);
    CHECK(first->state.load() == BlockState::streamed);
    CHECK(f.limbo->count() == 4);
    CHECK(f.limbo->bytes() == 2048);
    CHECK(f.limbo->take_newest(3, 7) == second);
    CHECK(second->state.load() == BlockState::freeing);
    CHECK(f.limbo->take_newest(3, 7) == first);
    CHECK(f.limbo->take_newest(3, 7) == nullptr);
    CHECK(f.limbo->take_newest(5, 7) == nullptr);
    CHECK(f.limbo->count() == 2);
    CHECK(f.limbo->bytes() == 1024);
}

TEST_CASE("StreamLimbo: oldest() names the oldest of each lane, by age") {
    Fixture f;
    Block* const first = f.push(3, 7);
    Block* const other_bin = f.push(4, 9);
    Block* const other_stream = f.push(3, 8);
    f.push(3, 7); // behind `first`
    StreamLimbo::Seen seen = f.limbo->oldest(3);
    CHECK(seen.block == first);
    CHECK(seen.stream == 7);
    CHECK(seen.event == first->event);
    seen = f.limbo->oldest(3, seen.turn);
    CHECK(seen.block == other_stream);
    CHECK(f.limbo->oldest(3, seen.turn).block == nullptr);
    seen = f.limbo->oldest(StreamLimbo::kAny);
    CHECK(seen.block == first);
    seen = f.limbo->oldest(StreamLimbo::kAny, seen.turn);
    CHECK(seen.block == other_bin);
    seen = f.limbo->oldest(StreamLimbo::kAny, seen.turn);
    CHECK(seen.block == other_stream);
    CHECK(f.limbo->oldest(StreamLimbo::kAny, seen.turn).block == nullptr);
    CHECK(f.limbo->oldest(5).block == nullptr);
}

TEST_CASE("StreamLimbo: what was seen is taken only if it is still the one") {
    Fixture f;
    CHECK(f.limbo->take({}) == nullptr);
    Block* const block = f.push(3, 7);
    const StreamLimbo::Seen seen = f.limbo->oldest(3);
    CHECK(f.limbo->take_newest(3, 7) == block);
    CHECK(f.limbo->take(seen) == nullptr);
    f.limbo->push(block, 7); // the same block again, in the same lane: another free
    CHECK(f.limbo->take(seen) == nullptr);
    const StreamLimbo::Seen again = f.limbo->oldest(3);
    CHECK(again.turn > seen.turn);
    CHECK(f.limbo->take(again) == block);
    CHECK(f.limbo->take(again) == nullptr);
    CHECK(f.limbo->count() == 0);
}

TEST_CASE("StreamLimbo: taking the oldest leaves the younger ones") {
    Fixture f;
    std::array<Block*, 4> blocks{};
    for (std::size_t i = 0; i < blocks.size(); ++i)
        blocks[i] = f.push(BinIndex::kNone, 7, 512 * (i + 1));
    CHECK(f.limbo->take(f.limbo->oldest(BinIndex::kNone)) == blocks[0]);
    CHECK(f.limbo->take_newest(BinIndex::kNone, 7) == blocks[3]);
    CHECK(f.limbo->take(f.limbo->oldest(StreamLimbo::kAny)) == blocks[1]);
    CHECK(f.limbo->bytes() == 1536);
    CHECK(f.limbo->take(f.limbo->oldest(StreamLimbo::kAny)) == blocks[2]);
    CHECK(f.limbo->oldest(StreamLimbo::kAny).block == nullptr);
}

TEST_CASE("StreamLimbo: as many lanes as blocks, again and again") {
    Fixture f;
    for (int round = 0; round < 3; ++round) {
        const std::uint64_t base = 10000 * static_cast<std::uint64_t>(round);
        f.blocks.clear();
        for (std::uint64_t i = 0; i < StreamLimbo::kMostBlocks; ++i)
            f.push(static_cast<std::uint32_t>(i % BinIndex::kBins), base + i);
        CHECK(f.limbo->count() == StreamLimbo::kMostBlocks);
        for (std::uint64_t i = 0; i < StreamLimbo::kMostBlocks; ++i) {
            const auto bin = static_cast<std::uint32_t>(i % BinIndex::kBins);
            if (f.limbo->take_newest(bin, base + i) != &f.blocks[i]) FAIL("lane " << i);
        }
        CHECK(f.limbo->count() == 0);
    }
}

TEST_CASE("StreamLimbo: does what a plain list of lists does") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random(seed);
    Fixture f;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::deque<Block*>> model;
    std::vector<Block*> spare;
    for (int step = 0; step < 20000; ++step) {
        const auto bin = static_cast<std::uint32_t>(random() % 5);
        const std::uint64_t stream = random() % 6;
        std::deque<Block*>& lane = model[{bin, stream}];
        switch (random() % 4) {
        case 0:
        case 1: {
            if (f.limbo->count() == 200) break;
            Block* block = nullptr;
            if (spare.empty()) {
                block = f.push(bin, stream);
            } else {
                block = spare.back();
                spare.pop_back();
                block->bin = bin;
                f.limbo->push(block, stream);
            }
            lane.push_back(block);
            break;
        }
        case 2: {
            Block* const block = f.limbo->take_newest(bin, stream);
            REQUIRE(block == (lane.empty() ? nullptr : lane.back()));
            if (block == nullptr) break;
            lane.pop_back();
            spare.push_back(block);
            break;
        }
        default: {
            const StreamLimbo::Seen seen =
                f.limbo->oldest(random() % 2 == 0 ? bin : StreamLimbo::kAny);
            if (seen.block == nullptr) break;
            std::deque<Block*>& from = model[{seen.block->bin, seen.stream}];
            REQUIRE(!from.empty());
            REQUIRE(from.front() == seen.block);
            REQUIRE(f.limbo->take(seen) == seen.block);
            from.pop_front();
            spare.push_back(seen.block);
        }
        }
        std::size_t held = 0;
        for (const auto& [key, blocks] : model)
            held += blocks.size();
        REQUIRE(f.limbo->count() == held);
    }
}

TEST_CASE("StreamLimbo: clear() forgets everything, and it works on") {
    Fixture f;
    for (std::uint32_t i = 0; i < 1000; ++i)
        f.push(i % 100, i % 13);
    const StreamLimbo::Seen seen = f.limbo->oldest(StreamLimbo::kAny);
    f.limbo->clear();
    CHECK(f.limbo->count() == 0);
    CHECK(f.limbo->bytes() == 0);
    CHECK(f.limbo->oldest(StreamLimbo::kAny).block == nullptr);
    CHECK(f.limbo->take_newest(5, 5) == nullptr);
    CHECK(f.limbo->take(seen) == nullptr);
    Block* const block = f.push(seen.block->bin, seen.stream);
    CHECK(f.limbo->take(seen) == nullptr);
    CHECK(f.limbo->count() == 1);
    CHECK(f.limbo->take_newest(block->bin, seen.stream) == block);
    for (std::uint32_t i = 0; i < 1000; ++i)
        f.push(i % 100, i % 13);
    CHECK(f.limbo->count() == 1000);
}
