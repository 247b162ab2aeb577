#include "core/pool/block_arena.h"
#include "core/pool/limbo.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

struct Fixture {
    std::unique_ptr<BlockArena> arena = std::make_unique<BlockArena>();
    std::unique_ptr<Limbo> limbo = std::make_unique<Limbo>();

    Block* push(std::uint32_t bin, std::uint64_t stamp, std::uint64_t size = 512) {
        Block* const block = arena->make();
        block->bin = bin;
        block->stamp = stamp;
        block->size = size;
        limbo->push(block);
        return block;
    }
};

/// A predicate: everything freed before `stamp` is settled.
auto below(std::uint64_t stamp) {
    return [stamp](const Block* block) { return block->stamp < stamp; };
}

std::vector<Block*> chain(Block* block) {
    std::vector<Block*> all;
    for (; block != nullptr; block = block->link)
        all.push_back(block);
    return all;
}

} // namespace

TEST_CASE("Limbo: first in, first out, and only what is settled") {
    Fixture f;
    CHECK(f.limbo->pop(1, below(100)) == nullptr);
    Block* const first = f.push(1, 10, 512);
    Block* const second = f.push(1, 20, 1024);
    CHECK(first->state.load() == BlockState::limbo);
    CHECK(f.limbo->count() == 2);
    CHECK(f.limbo->bytes() == 1536);
    CHECK(f.limbo->bytes(1) == 1536);
    CHECK(f.limbo->bytes(2) == 0);
    CHECK(f.limbo->pop(2, below(100)) == nullptr);
    CHECK(f.limbo->pop(1, below(10)) == nullptr);
    CHECK(f.limbo->pop(1, below(11)) == first);
    CHECK(first->link == nullptr);
    CHECK(f.limbo->pop(1, below(11)) == nullptr);
    CHECK(f.limbo->pop(1, below(21)) == second);
    CHECK(f.limbo->count() == 0);
    CHECK(f.limbo->bytes() == 0);
    CHECK(f.limbo->bytes(1) == 0);
}

TEST_CASE("Limbo: the head of one size or of all") {
    Fixture f;
    CHECK_FALSE(f.limbo->head(Limbo::kAny).found);
    CHECK_FALSE(f.limbo->head(7).found);
    f.push(7, 30);
    f.push(7, 40);
    f.push(BinIndex::kNone, 20);
    f.push(0, 50);
    CHECK(f.limbo->head(7).stamp == 30);
    CHECK(f.limbo->head(BinIndex::kNone).stamp == 20);
    CHECK(f.limbo->head(Limbo::kAny).stamp == 20);
    CHECK(f.limbo->pop(BinIndex::kNone, below(21)) != nullptr);
    CHECK(f.limbo->head(Limbo::kAny).stamp == 30);
    CHECK_FALSE(f.limbo->head(1).found);
    CHECK(f.limbo->youngest().stamp == 50);
    CHECK(f.limbo->pop(0, below(51)) != nullptr);
    CHECK(f.limbo->youngest().stamp == 40); // the tail of a queue, not its head
    CHECK(f.limbo->drain(below(100)) != nullptr);
    CHECK_FALSE(f.limbo->youngest().found);
}

TEST_CASE("Limbo: drain takes the settled heads of every queue and nothing behind one that waits") {
    Fixture f;
    std::set<Block*> settled{f.push(0, 1),
                             f.push(0, 2),
                             f.push(63, 1),
                             f.push(64, 3),
                             f.push(BinIndex::kBins - 1, 2),
                             f.push(BinIndex::kNone, 1)};
    Block* const waits = f.push(0, 9);
    Block* const behind = f.push(0, 2); // a free that arrived late
    const std::vector<Block*> taken = chain(f.limbo->drain(below(5)));
    CHECK(std::set<Block*>(taken.begin(), taken.end()) == settled);
    CHECK(taken.size() == settled.size());
    CHECK(f.limbo->count() == 2);
    CHECK(f.limbo->drain(below(5)) == nullptr);
    CHECK(f.limbo->pop(0, below(10)) == waits);
    CHECK(f.limbo->pop(0, below(10)) == behind);
    CHECK(f.limbo->drain(below(~std::uint64_t{0})) == nullptr);
}

TEST_CASE("Limbo: random programs against queues") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Fixture f;
    const std::uint32_t bins[] = {0, 63, 64, 2047, BinIndex::kBins - 1, BinIndex::kNone};
    std::map<std::uint32_t, std::deque<Block*>> model;
    std::uint64_t clock = 1;
    std::uint64_t mark = 0;
    std::uint64_t count = 0;
    for (int step = 0; step < 20000; ++step) {
        const std::uint32_t bin = bins[random() % 6];
        switch (random() % 5) {
        case 0:
        case 1:
            model[bin].push_back(f.push(bin, clock, (1 + random() % 9) * 512));
            ++clock;
            ++count;
            break;
        case 2: {
            Block* const block = f.limbo->pop(bin, below(mark));
            std::deque<Block*>& queue = model[bin];
            if (!queue.empty() && queue.front()->stamp < mark) {
                REQUIRE(block == queue.front());
                queue.pop_front();
                f.arena->recycle(block);
                --count;
            } else {
                REQUIRE(block == nullptr);
            }
            break;
        }
        case 3:
            mark += random() % (clock - mark);
            break;
        default:
            if (random() % 8 != 0) break;
            std::multiset<Block*> expected;
            for (auto& [key, queue] : model) {
                while (!queue.empty() && queue.front()->stamp < mark) {
                    expected.insert(queue.front());
                    queue.pop_front();
                    --count;
                }
            }
            const std::vector<Block*> taken = chain(f.limbo->drain(below(mark)));
            REQUIRE(std::multiset<Block*>(taken.begin(), taken.end()) == expected);
            for (Block* block : taken)
                f.arena->recycle(block);
        }
        REQUIRE(f.limbo->count() == count);
        std::uint64_t bytes = 0;
        std::uint64_t oldest = ~std::uint64_t{0};
        for (const auto& [key, queue] : model) {
            std::uint64_t here = 0;
            for (const Block* block : queue)
                here += block->size;
            REQUIRE(f.limbo->bytes(key) == here);
            bytes += here;
            if (!queue.empty()) oldest = std::min(oldest, queue.front()->stamp);
        }
        REQUIRE(f.limbo->bytes() == bytes);
        const Limbo::Head head = f.limbo->head(Limbo::kAny);
        REQUIRE(head.found == (count != 0));
        if (head.found) REQUIRE(head.stamp == oldest);
    }
}

TEST_CASE("Limbo: threads that push, pop and drain conserve the blocks") {
    Fixture f;
    constexpr int kPerThread = 5000;
    std::atomic<std::uint64_t> mark{0};
    std::atomic<std::uint64_t> clock{1};
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(static_cast<unsigned>(t));
            for (int i = 0; i < kPerThread; ++i) {
                Block* const block = f.arena->make();
                const auto bin = static_cast<std::uint32_t>(random() % 3);
                block->bin = bin;
                block->size = 512;
                block->stamp = clock.fetch_add(1);
                f.limbo->push(block);
                mark.store(clock.load() / 2);
                if (random() % 2 == 0) {
                    if (Block* const out = f.limbo->pop(bin, below(mark.load()))) {
                        ++taken;
                        f.arena->recycle(out);
                    }
                } else if (random() % 16 == 0) {
                    for (Block* out : chain(f.limbo->drain(below(mark.load())))) {
                        ++taken;
                        f.arena->recycle(out);
                    }
                }
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    const auto rest = chain(f.limbo->drain(below(~std::uint64_t{0})));
    CHECK(static_cast<int>(rest.size()) + taken.load() == 3 * kPerThread);
    CHECK(f.limbo->count() == 0);
    CHECK(f.limbo->bytes() == 0);
}

TEST_CASE("Limbo: clear() forgets everything, and it works on") {
    Fixture f;
    for (std::uint32_t bin = 0; bin <= BinIndex::kBins; bin += 7)
        f.push(bin, bin);
    f.limbo->clear();
    CHECK(f.limbo->count() == 0);
    CHECK(f.limbo->bytes() == 0);
    CHECK(f.limbo->bytes(7) == 0);
    CHECK_FALSE(f.limbo->head(Limbo::kAny).found);
    CHECK_FALSE(f.limbo->youngest().found);
    CHECK(f.limbo->drain(below(~std::uint64_t{0})) == nullptr);
    Block* const block = f.push(7, 3);
    CHECK(f.limbo->count() == 1);
    CHECK(f.limbo->pop(7, below(4)) == block);
}
