#include "core/pool/expandable_heap.h"

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

using namespace cachealloc;

namespace {

constexpr DeviceAddress kBase = 0x300000000000;

struct Fixture {
    std::unique_ptr<AddressMap> map = std::make_unique<AddressMap>();
    std::unique_ptr<BlockArena> arena = std::make_unique<BlockArena>();
    alignas(16) unsigned char nobody[1]; // the heap only notes whose its memory is
    ExpandableHeap heap{*map, *arena, *reinterpret_cast<DevicePool*>(nobody)};
    std::uint64_t state = 0;

    Fixture() { REQUIRE(heap.begin(kBase, 4 * kGiB)); }
    ExpandableHeap::Request request(std::uint64_t size) { return {size, ++state * 2 + 1}; }
    Block* grow(std::uint64_t size) {
        const PieceRun room = heap.plan_growth(size, false);
        REQUIRE(room.bytes != 0);
        const ExpandableHeap::Mapped mapped{room, kGranule};
        const ExpandableHeap::Request asked = request(size);
        const ExpandableHeap::Grown grown = heap.add_memory(&mapped, 1, &asked, false);
        REQUIRE(grown.done);
        return grown.block;
    }
    Block* get(std::uint64_t size) {
        Block* const block = heap.take(request(size), Heap::Reach::any);
        return block != nullptr ? block : grow(size);
    }
    /// No two free neighbours of one colour, no gap, nothing of a slab left over.
    void check() {
        DeviceAddress at = kBase;
        const Block* before = nullptr;
        heap.visit_blocks([&](const Block& block) {
            if (block.segment->kind != SegmentKind::range) return;
            REQUIRE(block.address == at);
            const auto is = [](const Block* one, BlockState wanted) {
                return one != nullptr && one->state.load() == wanted;
            };
            if (is(before, BlockState::free) && is(&block, BlockState::free))
                REQUIRE(before->small != block.small);
            REQUIRE_FALSE((is(before, BlockState::unmapped) && is(&block, BlockState::unmapped)));
            at += block.size;
            before = &block;
        });
        REQUIRE(at == kBase + 4 * kGiB);
    }
};

const auto kAlways = [](std::uint64_t) { return true; };

} // namespace

TEST_CASE("ExpandableHeap: small requests share slabs, which come back as one") {
    Fixture f;
    std::vector<Block*> small;
    for (int i = 0; i < 200; ++i)
        small.push_back(f.get(32 * kKiB)); // three slabs and a bit
    CHECK(f.heap.mapped() == 8 * kMiB);
    CHECK(f.heap.take(f.request(kMiB), Heap::Reach::any) == nullptr); // slabs are for small ones
    Block* const foreign = f.heap.take(f.request(kMiB), Heap::Reach::foreign);
    REQUIRE(foreign != nullptr);
    f.heap.put(foreign, 1);
    std::mt19937_64 random(std::random_device{}());
    while (!small.empty()) {
        std::swap(small[random() % small.size()], small.back());
        f.heap.put(small.back(), 1);
        small.pop_back();
        f.check();
    }
    Block* const all = f.heap.take(f.request(8 * kMiB), Heap::Reach::any);
    REQUIRE(all != nullptr);
    CHECK(all->address == kBase);
}

TEST_CASE("ExpandableHeap: the same state finds the same place, if it is free") {
    Fixture f;
    Block* const a = f.get(3 * kMiB);
    Block* const b = f.get(3 * kMiB);
    Block* const c = f.get(3 * kMiB);
    const ExpandableHeap::Request known{2 * kMiB, 77};
    f.heap.put(a, 1);
    f.heap.put(b, 1);
    Block* const first = f.heap.take(known, Heap::Reach::any); // low end of a and b
    const DeviceAddress place = first->address;
    Block* const second = f.heap.take(f.request(3 * kMiB), Heap::Reach::any);
    f.heap.put(first, 1);
    f.heap.put(c, 1); // a better fit than the old place
    Block* const again = f.heap.take(known, Heap::Reach::any);
    CHECK(again->address == place);
    CHECK(f.heap.affinity_hits() == 1);
    f.heap.put(second, 1);
    f.check();
}

TEST_CASE("ExpandableHeap: holes are filled before the range grows at its end") {
    Fixture f;
    Block* const a = f.get(8 * kMiB);
    Block* const b = f.get(4 * kMiB);
    const DeviceAddress lowest = a->address;
    f.heap.put(a, 5);
    CHECK(f.heap.take_pieces([](std::uint64_t stamp) { return stamp < 5; }) == nullptr);
    Block* const gone = f.heap.take_pieces(kAlways);
    REQUIRE(gone != nullptr);
    CHECK(gone->size == 8 * kMiB);
    f.heap.forget_pieces(gone);
    CHECK(f.heap.mapped() == 4 * kMiB);
    CHECK(f.map->segment_of(lowest) == nullptr);
    CHECK(f.heap.take_pieces(kAlways) == nullptr);
    f.check();
    Block* const filled = f.grow(5 * kMiB);
    CHECK(filled->address == lowest);
    CHECK(f.heap.mapped() == 10 * kMiB);
    f.check();
    CHECK(f.grow(6 * kMiB)->address > b->address); // does not fit into the rest of the hole
    f.check();
}

TEST_CASE("ExpandableHeap: pieces that a stitch maps are not given back") {
    Fixture f;
    std::vector<Block*> holes;
    std::vector<Block*> kept;
    for (int i = 0; i < 4; ++i) {
        holes.push_back(f.get(4 * kMiB));
        kept.push_back(f.get(2 * kMiB));
    }
    for (Block* hole : holes)
        f.heap.put(hole, 1);
    std::uint64_t missing = 0;
    CHECK(f.heap.plan_stitch(18 * kMiB, missing) == nullptr);
    CHECK(missing == 2 * kMiB);
    Stitch* const stitch = f.heap.plan_stitch(7 * kMiB, missing);
    REQUIRE(stitch != nullptr);
    CHECK(stitch->run_count == 2);
    CHECK(stitch->size == 8 * kMiB);
    Block* const block = f.heap.commit_stitch(stitch, 0x400000000000, f.request(7 * kMiB));
    REQUIRE(block != nullptr);
    CHECK(f.map->find(0x400000000000) == block);
    CHECK(f.heap.totals().free_in_tree == 9 * kMiB); // the rest of the last piece among it
    f.check();
    std::uint64_t released = 0;
    while (Block* const pieces = f.heap.take_pieces(kAlways)) {
        released += pieces->size;
        f.heap.forget_pieces(pieces);
    }
    CHECK(released == 8 * kMiB);
    f.heap.put(block, 2);
    CHECK(f.heap.take_pieces(kAlways) == nullptr); // idle, but mapped
    CHECK(f.heap.take_stitch([](std::uint64_t stamp) { return stamp < 2; }) == nullptr);
    CHECK(f.heap.take_stitch(kAlways) == stitch);
    CHECK(f.map->find(0x400000000000) == nullptr);
    f.heap.forget_stitch(stitch);
    CHECK(f.heap.take_pieces(kAlways) != nullptr);
}
