#pragma once

#include "core/pool/treap.h"

#include <cstdint>

namespace cachealloc {

/// The order of BestFitTree: size, then address, through Block::left and right.
struct BySize {
    static bool before(const Block* a, const Block* b) {
        return a->size != b->size ? a->size < b->size : a->address < b->address;
    }
    static Block*& left(Block* block) { return block->left; }
    static Block*& right(Block* block) { return block->right; }
};

/// Free blocks ordered by (size, address). Not thread-safe: the heap's lock guards it. All
/// operations O(log n) expected, no allocation.
class BestFitTree : public Treap<BySize> {
  public:
    /// The smallest block of at least `size` bytes, the lowest address among equals; null if none.
    Block* best_fit(std::uint64_t size) const {
        Block* best = nullptr;
        for (Block* at = root(); at != nullptr;) {
            if (at->size >= size) {
                best = at;
                at = at->left;
            } else {
                at = at->right;
            }
        }
        return best;
    }

    /// The largest block, or null.
    Block* largest() const { return last(); }
};

} // namespace cachealloc
