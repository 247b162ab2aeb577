#pragma once

#include "core/pool/heap.h"
#include "core/pool/size_rules.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

/// A heap over made-up addresses, with what a test needs to check it from outside: the blocks in
/// the test's hands and, by looking every 512-byte step of every segment up in the address map, the
/// free ones.
struct HeapModel {
    std::unique_ptr<cachealloc::AddressMap> map = std::make_unique<cachealloc::AddressMap>();
    std::unique_ptr<cachealloc::BlockArena> arena = std::make_unique<cachealloc::BlockArena>();
    std::unique_ptr<cachealloc::Heap> heap;
    std::uint64_t max_split;
    static constexpr std::uint64_t max_waste = 20 * cachealloc::kMiB;
    cachealloc::DeviceAddress next_base = 0x7e0000000000;
    std::map<cachealloc::DeviceAddress, std::uint64_t> segments; ///< base -> bytes
    std::map<cachealloc::DeviceAddress, cachealloc::Block*> held;

    explicit HeapModel(std::uint64_t max_split_bytes = ~std::uint64_t{0})
        : max_split(max_split_bytes) {
        // The heap only notes whose its segments are.
        alignas(16) static unsigned char nobody[1];
        heap = std::make_unique<cachealloc::Heap>(
            *map, *arena, *reinterpret_cast<cachealloc::DevicePool*>(nobody), max_split, max_waste);
    }

    cachealloc::Block* hold(cachealloc::Block* block) {
        if (block != nullptr) {
            block->state.store(cachealloc::BlockState::live);
            REQUIRE(held.emplace(block->address, block).second);
        }
        return block;
    }
    cachealloc::Block* grow(std::uint64_t bytes, bool small, std::uint64_t size) {
        const cachealloc::DeviceAddress base = next_base;
        next_base += bytes;
        segments[base] = bytes;
        return hold(heap->add_segment(base, bytes, small, size));
    }
    cachealloc::Block* take(std::uint64_t size) { return hold(heap->take(size)); }
    void let_go(cachealloc::Block* block) {
        REQUIRE(held.erase(block->address) == 1);
        block->state.store(cachealloc::BlockState::freeing);
    }
    void put(cachealloc::Block* block) {
        let_go(block);
        heap->put(block);
    }
    /// Takes the coldest segment out and retires it. Returns its base, 0 if there is none.
    cachealloc::DeviceAddress retire_coldest(std::uint64_t at_least = 0) {
        cachealloc::Segment* const segment = heap->take_coldest(at_least);
        if (segment == nullptr) return 0;
        const cachealloc::DeviceAddress base = segment->base;
        REQUIRE(map->segment_of(base) == nullptr);
        REQUIRE(segments.erase(base) == 1);
        heap->retire(segment);
        return base;
    }

    struct Free {
        cachealloc::DeviceAddress address;
        std::uint64_t size;
        bool small;
    };
    /// Walks every segment through the address map and checks the heap's invariant: wholly covered,
    /// held blocks where they should be, no two free neighbours, totals right.
    std::vector<Free> check() const {
        using namespace cachealloc;
        std::vector<Free> free;
        Heap::Totals expected;
        std::uint64_t expected_wholly_free = 0;
        std::size_t seen_held = 0;
        for (const auto& [base, bytes] : segments) {
            expected.reserved += bytes;
            ++expected.segments;
            bool before_free = false;
            bool any_live = false;
            for (DeviceAddress at = base; at < base + bytes;) {
                const Block* const block = map->find(at);
                REQUIRE(block != nullptr);
                REQUIRE(block->address == at);
                REQUIRE(block->size > 0);
                REQUIRE(block->size % kBlockAlignment == 0);
                REQUIRE(block->segment == map->segment_of(at));
                REQUIRE((block->previous == nullptr) == (at == base));
                if (block->previous != nullptr) REQUIRE(block->previous->next == block);
                const bool is_free = block->state.load() == BlockState::free;
                const auto found = held.find(at);
                REQUIRE(is_free == (found == held.end()));
                if (is_free) {
                    REQUIRE_FALSE(before_free);
                    free.push_back({at, block->size, block->segment->small});
                    expected.free_in_tree += block->size;
                    expected.largest_free = std::max(expected.largest_free, block->size);
                } else {
                    REQUIRE(found->second == block);
                    ++seen_held;
                    any_live = true;
                }
                before_free = is_free;
                at += block->size;
                REQUIRE(at <= base + bytes);
                REQUIRE((block->next == nullptr) == (at == base + bytes));
            }
            if (!any_live) expected_wholly_free += bytes;
        }
        REQUIRE(seen_held == held.size());
        const Heap::Totals totals = heap->totals();
        REQUIRE(totals.reserved == expected.reserved);
        REQUIRE(totals.segments == expected.segments);
        REQUIRE(totals.free_in_tree == expected.free_in_tree);
        REQUIRE(totals.largest_free == expected.largest_free);
        REQUIRE(heap->wholly_free() == expected_wholly_free);
        REQUIRE(heap->reserved() == expected.reserved);
        return free;
    }
};
