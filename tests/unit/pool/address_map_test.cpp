#include "core/pool/address_map.h"
#include "core/pool/block_arena.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

using namespace cachealloc;

namespace {

constexpr DeviceAddress kBase = 0x7f0000000000;

struct Fixture {
    std::unique_ptr<AddressMap> map = std::make_unique<AddressMap>();
    std::unique_ptr<BlockArena> arena = std::make_unique<BlockArena>();

    Block* start(DeviceAddress address, std::uint64_t size) {
        Block* const block = arena->make();
        block->address = address;
        block->size = size;
        REQUIRE(map->set_start(block));
        return block;
    }
    static Segment segment(DeviceAddress base, std::uint64_t size) { return {base, size}; }
};

} // namespace

TEST_CASE("AddressMap: knows nothing of addresses nobody inserted") {
    Fixture f;
    CHECK(f.map->find(0) == nullptr);
    CHECK(f.map->find(kBase) == nullptr);
    CHECK(f.map->segment_of(kBase) == nullptr);
    CHECK(f.map->find_containing(kBase) == nullptr);
    CHECK(f.map->find(~DeviceAddress{0}) == nullptr);
    CHECK(f.map->segment_of(~DeviceAddress{0}) == nullptr);
    CHECK(f.map->find_containing(~DeviceAddress{0}) == nullptr);
}

TEST_CASE("AddressMap: starts, interior addresses and neighbours") {
    Fixture f;
    Segment low = Fixture::segment(kBase, 2 * kGranule);
    Segment high = Fixture::segment(kBase + 2 * kGranule, kGranule);
    REQUIRE(f.map->insert(low));
    REQUIRE(f.map->insert(high));
    Block* const first = f.start(kBase, 1536);
    Block* const second = f.start(kBase + 1536, 2 * kGranule - 1536);
    Block* const third = f.start(kBase + 2 * kGranule, kGranule);

    CHECK(f.map->find(kBase) == first);
    CHECK(f.map->find(kBase + 512) == nullptr);
    CHECK(f.map->find(kBase + 1) == nullptr);
    CHECK(f.map->find(kBase + 1536) == second);
    CHECK(f.map->find(kBase + kGranule) == nullptr);
    CHECK(f.map->find(kBase + 2 * kGranule) == third);
    CHECK(f.map->find(kBase - 512) == nullptr);

    CHECK(f.map->segment_of(kBase - 1) == nullptr);
    CHECK(f.map->segment_of(kBase) == &low);
    CHECK(f.map->segment_of(kBase + 2 * kGranule - 1) == &low);
    CHECK(f.map->segment_of(kBase + 2 * kGranule) == &high);
    CHECK(f.map->segment_of(kBase + 3 * kGranule) == nullptr);

    CHECK(f.map->find_containing(kBase + 1535) == first);
    CHECK(f.map->find_containing(kBase + 1537) == second);
    CHECK(f.map->find_containing(kBase + kGranule + 12345) == second);
    CHECK(f.map->find_containing(kBase + 2 * kGranule - 1) == second);
    CHECK(f.map->find_containing(kBase + 2 * kGranule) == third);
    CHECK(f.map->find_containing(kBase + 3 * kGranule - 1) == third);
    CHECK(f.map->find_containing(kBase + 3 * kGranule) == nullptr);
    CHECK(f.map->find_containing(kBase - 1) == nullptr);
}

TEST_CASE("AddressMap: a start that is cleared gives its bytes to the block below") {
    Fixture f;
    Segment segment = Fixture::segment(kBase, kGranule);
    REQUIRE(f.map->insert(segment));
    Block* const first = f.start(kBase, 4096);
    Block* const second = f.start(kBase + 4096, kGranule - 4096);
    CHECK(f.map->find_containing(kBase + 5000) == second);
    f.map->clear_start(second);
    CHECK(f.map->find(kBase + 4096) == nullptr);
    CHECK(f.map->find_containing(kBase + 5000) == first);
    Block* const stranger = f.arena->make(); // nothing was ever noted there
    stranger->address = kBase + kGranule - 512;
    f.map->clear_start(stranger);
    CHECK(f.map->find_containing(kBase + kGranule - 1) == first);
}

TEST_CASE("AddressMap: a look for the block below stops at its segment's start") {
    Fixture f;
    Segment low = Fixture::segment(kBase, kGranule);
    Segment high = Fixture::segment(kBase + kGranule, kGranule); // no block of it is noted yet
    REQUIRE(f.map->insert(low));
    REQUIRE(f.map->insert(high));
    Block* const block = f.start(kBase, kGranule - 512);
    Block* const last = f.start(kBase + kGranule - 512, 512);
    CHECK(f.map->find_containing(kBase + kGranule - 513) == block);
    CHECK(f.map->find_containing(kBase + kGranule - 1) == last);
    CHECK(f.map->find_containing(kBase + kGranule) == nullptr);
    CHECK(f.map->find_containing(kBase + kGranule + 100000) == nullptr);
}

TEST_CASE("AddressMap: hidden segments are seen by nobody and come back as they were") {
    Fixture f;
    Segment segment = Fixture::segment(kBase, kGranule);
    Segment neighbour = Fixture::segment(kBase + kGranule, kGranule);
    REQUIRE(f.map->insert(segment));
    REQUIRE(f.map->insert(neighbour));
    Block* const block = f.start(kBase, kGranule);
    Block* const other = f.start(kBase + kGranule, kGranule);
    f.map->hide(segment);
    CHECK(f.map->find(kBase) == nullptr);
    CHECK(f.map->segment_of(kBase + 5) == nullptr);
    CHECK(f.map->find_containing(kBase + 5) == nullptr);
    CHECK(f.map->find(kBase + kGranule) == other);
    REQUIRE(f.map->insert(segment));
    CHECK(f.map->find(kBase) == block);
    CHECK(f.map->find_containing(kBase + 5) == block);
}

TEST_CASE("AddressMap: tables serve the next segment at the same place") {
    Fixture f;
    for (int round = 0; round < 100; ++round) {
        Segment segment = Fixture::segment(kBase, 3 * kGranule);
        REQUIRE(f.map->insert(segment));
        Block* const block = f.start(kBase, 3 * kGranule);
        REQUIRE(f.map->find(kBase) == block);
        f.map->hide(segment);
        f.map->clear_start(block);
        f.arena->recycle(block);
        REQUIRE(f.map->find(kBase) == nullptr);
    }
}

TEST_CASE("AddressMap: what came to an address later stays when the earlier goes") {
    Fixture f;
    Segment old_segment = Fixture::segment(kBase, 2 * kGranule);
    REQUIRE(f.map->insert(old_segment));
    Block* const old_block = f.start(kBase, 2 * kGranule);
    // The driver took the memory back and gave half of it to another pool.
    Segment new_segment = Fixture::segment(kBase, kGranule);
    REQUIRE(f.map->insert(new_segment));
    Block* const new_block = f.start(kBase, kGranule);
    f.map->clear_start(old_block);
    f.map->hide(old_segment);
    CHECK(f.map->find(kBase) == new_block);
    CHECK(f.map->segment_of(kBase + 1) == &new_segment);
    CHECK(f.map->segment_of(kBase + kGranule) == nullptr);
}

TEST_CASE("AddressMap: the ends of the address space") {
    Fixture f;
    constexpr DeviceAddress kEnd = DeviceAddress{1} << 51;
    Segment last = Fixture::segment(kEnd - kGranule, kGranule);
    REQUIRE(f.map->insert(last));
    CHECK(f.map->segment_of(kEnd - 1) == &last);
    CHECK(f.map->segment_of(kEnd) == nullptr);
    Segment across = Fixture::segment(kEnd - kGranule, 2 * kGranule);
    CHECK_FALSE(f.map->insert(across));
    Segment beyond = Fixture::segment(kEnd, kGranule);
    CHECK_FALSE(f.map->insert(beyond));
    f.map->hide(beyond);
    // One segment over the seam of two first-level entries.
    constexpr DeviceAddress kSeam = DeviceAddress{1} << 36;
    Segment seam = Fixture::segment(kSeam - kGranule, 2 * kGranule);
    REQUIRE(f.map->insert(seam));
    Block* const block = f.start(seam.base, seam.size);
    CHECK(f.map->find_containing(kSeam + 4711) == block);
}

TEST_CASE("AddressMap: readers beside a writer see a block or nothing") {
    Fixture f;
    Segment lasting = Fixture::segment(kBase, kGranule);
    REQUIRE(f.map->insert(lasting));
    Block* const block = f.start(kBase, kGranule);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::atomic<int> rounds{0};
    std::thread reader([&] {
        while (!stop.load()) {
            if (f.map->find(kBase) != block) ++wrong;
            if (f.map->segment_of(kBase + 4096) != &lasting) ++wrong;
            const Block* const seen = f.map->find(kBase + kGranule);
            if (seen != nullptr && seen == block) ++wrong;
            ++rounds;
        }
    });
    Segment coming = Fixture::segment(kBase + kGranule, kGranule);
    Block* const other = f.arena->make();
    other->address = coming.base;
    other->size = coming.size;
    for (int i = 0; i < 2000 || rounds.load() < 100; ++i) {
        REQUIRE(f.map->insert(coming));
        REQUIRE(f.map->set_start(other));
        f.map->hide(coming);
        f.map->clear_start(other);
    }
    stop = true;
    reader.join();
    CHECK(wrong.load() == 0);
}
