#pragma once

#include "core/pool/block.h"

#include <cstdint>

namespace cachealloc {

/// Free blocks ordered by (size, address): a treap through Block::left and right whose priorities
/// are a hash of the descriptor's index, so its shape depends on nothing but its content.
///
/// Invariant: in-order is ascending by (size, address); a node's priority is not below its
/// children's. Not thread-safe: the heap's lock guards it. All operations O(log n) expected, no
/// allocation.
class BestFitTree {
  public:
    void insert(Block* block);

    /// `block` must be in the tree, with the size and address it was inserted with.
    void erase(Block* block);

    /// The smallest block of at least `size` bytes, the lowest address among equals; null if none.
    Block* best_fit(std::uint64_t size) const;

    /// The one behind `block` in the order of (size, address); null if it is the last.
    Block* next(const Block* block) const;

    /// The largest block, or null.
    Block* largest() const;

    bool empty() const { return root_ == nullptr; }

  private:
    Block* root_ = nullptr;
};

} // namespace cachealloc
