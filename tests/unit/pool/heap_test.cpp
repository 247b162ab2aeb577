#include "core/pool/heap.h"

#include "heap_model.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <random>
#include <thread>
#include <utility>

using namespace cachealloc;

TEST_CASE("Heap: a segment is cut, taken from by best fit and merges again") {
    HeapModel m;
    CHECK(m.take(512) == nullptr);
    Block* const first = m.grow(kGranule, true, 512);
    REQUIRE(first != nullptr);
    CHECK(first->size == 512);
    Block* const second = m.take(1024);
    Block* const third = m.take(2048);
    CHECK(second->address == first->address + 512);
    CHECK(third->address == second->address + 1024);
    m.check();
    m.put(second);
    CHECK(m.check().size() == 2);
    CHECK(m.take(512)->address == second->address); // the smallest fit, not the big rest
    m.check();
    CHECK(m.heap->totals().splits == 4);
}

TEST_CASE("Heap: among equals the lowest address") {
    HeapModel m;
    std::vector<Block*> blocks{m.grow(kGranule, true, 4096)};
    for (int i = 0; i < 5; ++i)
        blocks.push_back(m.take(4096));
    m.put(blocks[4]);
    m.put(blocks[0]);
    m.put(blocks[2]);
    const DeviceAddress lowest = blocks[0]->address;
    CHECK(m.take(4096)->address == lowest);
    m.check();
}

TEST_CASE("Heap: small and large requests do not share segments") {
    HeapModel m;
    m.put(m.grow(kGranule, true, kGranule));
    CHECK(m.take(kMiB + 512) == nullptr);
    CHECK(m.take(kMiB) != nullptr);
    m.put(m.grow(4 * kGranule, false, 4 * kGranule));
    Block* const large = m.take(kMiB + 512);
    REQUIRE(large != nullptr);
    CHECK_FALSE(large->segment->small);
    m.check();
}

TEST_CASE("Heap: how far a request may reach") {
    HeapModel m;
    const auto take = [&](std::uint64_t size, Heap::Reach reach) {
        return m.hold(m.heap->take(size, reach));
    };
    m.put(m.grow(72 * kMiB, false, 72 * kMiB));
    // A modest request does not pin a wholly free segment more than 8 times its size ...
    CHECK(take(9 * kMiB - 512, Heap::Reach::modest) == nullptr);
    Block* const ninth = take(9 * kMiB, Heap::Reach::modest);
    REQUIRE(ninth != nullptr);
    // ... but takes from one that small blocks are in already ...
    Block* const next = take(2 * kMiB, Heap::Reach::modest);
    REQUIRE(next != nullptr);
    CHECK(next->segment == ninth->segment);
    m.put(next);
    m.put(ninth);
    // ... and not the tail of one that a large block has for itself, in use or free ...
    Block* const most = take(50 * kMiB, Heap::Reach::any);
    CHECK(take(2 * kMiB, Heap::Reach::modest) == nullptr);
    // ... but another one behind the best fit.
    m.put(m.grow(24 * kMiB, false, 24 * kMiB));
    Block* const other = take(2 * kMiB, Heap::Reach::modest);
    REQUIRE(other != nullptr);
    CHECK(other->segment->size == 24 * kMiB);
    m.put(most);
    Block* const first = take(30 * kMiB, Heap::Reach::any);
    Block* const second = take(30 * kMiB, Heap::Reach::any);
    REQUIRE(second->segment == first->segment);
    CHECK(take(8 * kMiB, Heap::Reach::modest)->segment == first->segment);
    m.check();
    m.put(first);
    m.put(second);
    CHECK(take(2 * kMiB, Heap::Reach::any) != nullptr);
    // Segments of up to 64 MiB are never too large.
    HeapModel n;
    n.put(n.grow(64 * kMiB, false, 64 * kMiB));
    CHECK(n.hold(n.heap->take(2 * kMiB, Heap::Reach::modest)) != nullptr);
    // The other kind of segment only where asked for.
    CHECK(n.heap->take(512, Heap::Reach::any) == nullptr);
    CHECK(n.hold(n.heap->take(512, Heap::Reach::foreign)) != nullptr);
    CHECK(n.heap->take(2 * kMiB, Heap::Reach::foreign) == nullptr);
    n.check();
}

TEST_CASE("Heap: what a request leaves of a block stays free, down to the smallest") {
    HeapModel m;
    Block* const whole = m.grow(kGranule, false, kGranule - 512);
    CHECK(whole->size == kGranule - 512);
    m.put(whole);
    CHECK(m.take(kGranule)->size == kGranule);
    m.check();
    HeapModel small;
    CHECK(small.grow(kGranule, true, kMiB)->size == kMiB);
    CHECK(small.take(kMiB - 512)->size == kMiB - 512);
    CHECK(small.take(512)->size == 512);
    CHECK(small.take(512) == nullptr);
    small.check();
}

TEST_CASE("Heap: segments made for requests of max_split bytes and more are never split") {
    HeapModel m(32 * kMiB);
    Block* const big = m.grow(64 * kMiB, false, 64 * kMiB);
    m.put(big);
    CHECK(m.take(2 * kMiB) == nullptr);  // a small request would waste it
    CHECK(m.take(40 * kMiB) == nullptr); // 24 MiB of waste: too much
    CHECK(m.take(44 * kMiB) == nullptr); // exactly 20 MiB: still too much
    Block* const block = m.take(44 * kMiB + 512);
    REQUIRE(block != nullptr);
    CHECK(block->size == 64 * kMiB); // whole
    m.check();
    m.put(block);
    CHECK(m.take(32 * kMiB - 512) == nullptr); // the limit itself counts as large
    CHECK(m.grow(32 * kMiB, false, 32 * kMiB - 512)->size == 32 * kMiB - 512);
    CHECK(m.take(512) == nullptr);
    // Below the limit segments are split as ever.
    m.put(m.grow(30 * kMiB, false, 30 * kMiB));
    CHECK(m.take(10 * kMiB)->size == 10 * kMiB);
    m.check();
    // Rather than fail, a small request gets all of it.
    CHECK(m.hold(m.heap->take(50 * kMiB, Heap::Reach::foreign))->size == 64 * kMiB);
    m.check();
}

// PyTorch's search ends at a block that is too large to be split for the request, and its segments
// of 20 MiB become such blocks at max_split_size_mb:20.
TEST_CASE("Heap: a block that must not be split hides none that may be") {
    HeapModel m(20 * kMiB);
    m.put(m.grow(22 * kMiB, false, 22 * kMiB)); // unsplit
    Block* const shared = m.grow(20 * kMiB, false, 2 * kMiB);
    CHECK(shared->size == 2 * kMiB);
    m.put(shared);
    Block* const again = m.take(2 * kMiB); // wholly free by now, and of max_split bytes
    REQUIRE(again != nullptr);
    CHECK(again->size == 2 * kMiB);
    m.put(again);
    m.put(m.grow(30 * kMiB, false, 19 * kMiB)); // a shared one behind the unsplit ones
    CHECK(m.take(19 * kMiB)->segment->size == 20 * kMiB);
    CHECK(m.take(19 * kMiB + 512)->segment->size == 30 * kMiB);
    CHECK(m.take(20 * kMiB)->segment->size == 22 * kMiB);
    m.check();
}

TEST_CASE("Heap: which wholly free segment covers a need") {
    HeapModel m;
    for (const std::uint64_t size : {8, 2, 20, 4, 12})
        m.put(m.grow(size * kMiB, false, size * kMiB));
    Block* const live = m.grow(6 * kMiB, false, 2 * kMiB);
    CHECK(m.heap->releasable() == 46 * kMiB);
    const auto take = [&](std::uint64_t bytes) {
        Segment* const segment = m.heap->take_covering(bytes);
        if (segment == nullptr) return std::uint64_t{0};
        const std::uint64_t size = segment->size;
        m.segments.erase(segment->base);
        m.heap->retire(segment);
        return size;
    };
    CHECK(take(3 * kMiB) == 4 * kMiB);
    CHECK(take(12 * kMiB) == 12 * kMiB);
    CHECK(take(21 * kMiB) == 20 * kMiB); // none covers it
    CHECK(take(1) == 2 * kMiB);
    CHECK(m.heap->releasable() == 8 * kMiB);
    CHECK(take(1) == 8 * kMiB);
    CHECK(take(1) == 0);
    m.put(live);
    m.put(m.grow(kGranule, true, 512));
    CHECK(m.heap->take_coldest_large()->size == 6 * kMiB);
    CHECK(m.heap->take_coldest_large() == nullptr);
}

TEST_CASE("Heap: the cold list gives segments in the order in which they became free") {
    HeapModel m;
    std::vector<Block*> blocks;
    std::vector<DeviceAddress> bases;
    for (std::uint64_t i = 0; i < 4; ++i) {
        blocks.push_back(m.grow((i + 1) * kGranule, false, (i + 1) * kGranule));
        bases.push_back(blocks.back()->address);
    }
    CHECK(m.retire_coldest() == 0);
    for (const std::size_t i : {2U, 0U, 3U, 1U})
        m.put(blocks[i]);
    // Used and freed again: the warmest now.
    Block* const again = m.take(kGranule);
    CHECK(again->address == bases[0]);
    m.put(again);
    m.check();
    CHECK(m.retire_coldest(4 * kGranule) == bases[3]); // the coldest of that size
    CHECK(m.retire_coldest(5 * kGranule) == 0);
    CHECK(m.retire_coldest() == bases[2]);
    CHECK(m.retire_coldest() == bases[1]);
    CHECK(m.retire_coldest() == bases[0]);
    CHECK(m.retire_coldest() == 0);
    CHECK(m.heap->totals().reserved == 0);
    CHECK(m.heap->reserved_peak() == 10 * kGranule);
}

TEST_CASE("Heap: a segment that could not be given back is there again, as the warmest") {
    HeapModel m;
    Block* const first = m.grow(kGranule, false, kGranule);
    Block* const second = m.grow(kGranule, false, kGranule);
    const DeviceAddress base = first->address;
    const DeviceAddress other = second->address;
    m.put(first);
    m.put(second);
    Segment* const segment = m.heap->take_coldest(0);
    REQUIRE(segment->base == base);
    CHECK(m.map->find(base) == nullptr);
    CHECK(m.map->segment_of(base + 77) == nullptr);
    CHECK(m.heap->reserved() == kGranule);
    m.heap->restore(segment);
    m.check();
    CHECK(m.retire_coldest() == other);
    CHECK(m.take(kGranule)->address == base);
    m.check();
}

TEST_CASE("Heap: exported segments are kept for good and do not count as free") {
    HeapModel m;
    Block* const block = m.grow(kGranule, false, kGranule);
    block->segment->exported = true;
    m.put(block);
    CHECK(m.heap->take_coldest(0) == nullptr);
    CHECK(m.heap->wholly_free() == 0);
    CHECK(m.heap->totals().free_in_tree == kGranule);
    CHECK(m.take(kGranule) == block);
}

TEST_CASE("Heap: an address that came back from the driver is not forgotten by the late retire") {
    // One thread gives a segment back; before it has told the heap, another gets the same address.
    HeapModel m;
    Block* const block = m.grow(kGranule, true, 512);
    const DeviceAddress base = block->address;
    m.put(block);
    Segment* const leaving = m.heap->take_coldest(0);
    REQUIRE(leaving->base == base);
    Block* const fresh = m.heap->add_segment(base, kGranule, true, 1024);
    REQUIRE(fresh != nullptr);
    m.heap->retire(leaving);
    CHECK(m.map->find(base) == fresh);
    CHECK(m.map->find_containing(base + 1023) == fresh);
    m.hold(fresh);
    m.check();
}

TEST_CASE("Heap: hidden segments are unknown and come back unchanged") {
    HeapModel m;
    Block* const first = m.grow(kGranule, true, 512);
    Block* const second = m.grow(2 * kGranule, false, 2 * kGranule);
    m.heap->hide_all();
    CHECK(m.map->find(first->address) == nullptr);
    CHECK(m.map->segment_of(second->address + kGranule) == nullptr);
    m.heap->show_all();
    m.check();
}

TEST_CASE("Heap: an address beyond the map is refused and leaves no trace") {
    HeapModel m;
    CHECK(m.heap->add_segment(DeviceAddress{1} << 51, kGranule, true, 512) == nullptr);
    CHECK(m.heap->totals().segments == 0);
    CHECK(m.heap->reserved() == 0);
    m.check();
}

TEST_CASE("Heap: random splits and merges keep the invariant and always find the best fit") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const std::uint64_t max_split = random() % 2 == 0 ? ~std::uint64_t{0} : 24 * kMiB;
    CAPTURE(max_split);
    HeapModel m(max_split);
    std::deque<DeviceAddress> cold; // wholly free segments, coldest first
    const auto unsplit = [&](const HeapModel::Free& block) {
        return m.map->segment_of(block.address)->unsplit;
    };
    const auto whole = [&](const Block* block) { return block->size == block->segment->size; };
    std::uint64_t peak = 0;
    for (int step = 0; step < 4000; ++step) {
        const std::vector<HeapModel::Free> free = m.check();
        const std::uint64_t kind = random() % 100;
        if (kind < 45) {
            const bool small = random() % 2 == 0;
            const std::uint64_t size = small ? (1 + random() % 200) * kBlockAlignment
                                             : kMiB + (1 + random() % 20000) * kBlockAlignment;
            const HeapModel::Free* best = nullptr;
            for (const HeapModel::Free& candidate : free) {
                if (candidate.small != small || candidate.size < size) continue;
                if (unsplit(candidate)) continue;
                if (best == nullptr || candidate.size < best->size) best = &candidate;
            }
            const auto fitter = [&](const HeapModel::Free& candidate) {
                return best == nullptr || candidate.size < best->size;
            };
            if (size >= max_split) {
                const HeapModel::Free* const shared = std::exchange(best, nullptr);
                for (const HeapModel::Free& candidate : free) {
                    const bool fits =
                        candidate.size >= size && candidate.size - size < HeapModel::max_waste;
                    if (unsplit(candidate) && fits && fitter(candidate)) best = &candidate;
                }
                if (best == nullptr) best = shared;
            }
            const DeviceAddress expected = best != nullptr ? best->address : 0;
            Block* const block = m.take(size);
            CAPTURE(step, size, expected);
            REQUIRE((block == nullptr) == (expected == 0));
            if (block != nullptr) {
                REQUIRE(block->address == expected);
                REQUIRE(block->size >= size);
                std::erase(cold, block->segment->base);
            } else if (m.segments.size() < 12) {
                const std::uint64_t least = (size + kGranule - 1) / kGranule * kGranule;
                const std::uint64_t bytes = small ? kGranule : least + random() % 3 * kGranule;
                REQUIRE(m.grow(bytes, small, size) != nullptr);
                peak = std::max(peak, m.heap->reserved());
            }
        } else if (kind < 85 && !m.held.empty()) {
            auto at = m.held.begin();
            std::advance(at, static_cast<std::ptrdiff_t>(random() % m.held.size()));
            const DeviceAddress base = at->second->segment->base;
            m.put(at->second);
            if (whole(m.map->find(base))) cold.push_back(base);
        } else if (kind < 92 && m.held.size() >= 3) {
            Block* chain = nullptr;
            for (int i = 0; i < 3; ++i) { // put_chain walks from the last one linked
                Block* const block = m.held.rbegin()->second;
                m.let_go(block);
                block->link = chain;
                chain = block;
            }
            std::vector<DeviceAddress> bases;
            for (Block* block = chain; block != nullptr; block = block->link) {
                bases.push_back(block->segment->base);
            }
            m.heap->put_chain(chain);
            for (std::size_t i = 0; i < bases.size(); ++i) {
                const bool last = std::find(bases.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                            bases.end(), bases[i]) == bases.end();
                if (last && whole(m.map->find(bases[i]))) cold.push_back(bases[i]);
            }
        } else if (kind < 96) {
            const DeviceAddress expected = cold.empty() ? 0 : cold.front();
            REQUIRE(m.retire_coldest() == expected);
            if (!cold.empty()) cold.pop_front();
        }
        REQUIRE(m.heap->reserved_peak() == peak);
    }
    while (!m.held.empty())
        m.put(m.held.begin()->second);
    REQUIRE(m.check().size() == m.segments.size()); // everything merged into whole segments
}

TEST_CASE("Heap: threads that take and put never share a byte") {
    HeapModel m;
    m.put(m.grow(8 * kGranule, false, 8 * kGranule));
    for (int i = 0; i < 4; ++i)
        m.put(m.grow(kGranule, true, kGranule));
    std::atomic<int> failures{0};
    const std::uint64_t units = 12 * kGranule / kBlockAlignment;
    std::vector<std::atomic<std::uint8_t>> bytes(units);
    const DeviceAddress base = m.segments.begin()->first;
    const auto mark = [&](const Block* block, std::uint8_t from, std::uint8_t to) {
        const std::uint64_t first = (block->address - base) / kBlockAlignment;
        for (std::uint64_t i = 0; i < block->size / kBlockAlignment; ++i) {
            if (bytes[first + i].exchange(to, std::memory_order_relaxed) != from) ++failures;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(t);
            std::vector<Block*> mine;
            for (int i = 0; i < 4000; ++i) {
                const std::uint64_t size = random() % 4 != 0
                                               ? (1 + random() % 64) * kBlockAlignment
                                               : kMiB + (1 + random() % 64) * kBlockAlignment;
                if (Block* const block = m.heap->take(size)) {
                    mark(block, 0, 1);
                    mine.push_back(block);
                }
                if (mine.size() > 20 || (!mine.empty() && random() % 3 == 0)) {
                    const std::size_t at = random() % mine.size();
                    mark(mine[at], 1, 0);
                    m.heap->put(mine[at]);
                    mine[at] = mine.back();
                    mine.pop_back();
                }
            }
            for (Block* block : mine) {
                mark(block, 1, 0);
                m.heap->put(block);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(failures.load() == 0);
    CHECK(m.check().size() == m.segments.size());
}
