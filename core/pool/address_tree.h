#pragma once

#include "core/pool/treap.h"

#include <cstdint>

namespace cachealloc {

/// The order of AddressTree: the address, through Block::lower and upper.
struct ByAddress {
    static bool before(const Block* a, const Block* b) { return a->address < b->address; }
    static Block*& left(Block* block) { return block->lower; }
    static Block*& right(Block* block) { return block->upper; }
};

/// Free blocks ordered by address; a block may be in a BestFitTree as well. Not thread-safe: the
/// heap's lock guards it. All operations O(log n) expected, no allocation.
class AddressTree : public Treap<ByAddress> {
  public:
    /// The block that holds all of [address, address + bytes), or null.
    Block* holding(DeviceAddress address, std::uint64_t bytes) const {
        Block* found = nullptr;
        for (Block* at = root(); at != nullptr;) {
            if (at->address <= address) {
                found = at;
                at = at->upper;
            } else {
                at = at->lower;
            }
        }
        const bool holds = found != nullptr && address + bytes <= found->address + found->size;
        return holds ? found : nullptr;
    }
};

} // namespace cachealloc
