#pragma once

#include "core/pool/block.h"

#include <cstdint>

namespace cachealloc {

/// Blocks in the order that `Order` gives: a treap whose priorities are a hash of the descriptor's
/// index, so its shape depends on nothing but its content. `Order` has before(a, b), a total order,
/// and left(block) and right(block), the links that this tree may use.
///
/// Invariant: in-order is ascending; a node's priority is not below its children's. Not
/// thread-safe. All operations O(log n) expected, no allocation.
template <class Order>
class Treap {
  public:
    void insert(Block* block) {
        Block** link = &root_;
        const std::uint32_t mine = priority(block);
        while (*link != nullptr && priority(*link) >= mine)
            link = Order::before(block, *link) ? &Order::left(*link) : &Order::right(*link);
        split(*link, block, &Order::left(block), &Order::right(block));
        *link = block;
    }

    /// `block` must be in the tree, with what it is ordered by as it was inserted.
    void erase(Block* block) {
        Block** link = &root_;
        while (*link != block)
            link = Order::before(block, *link) ? &Order::left(*link) : &Order::right(*link);
        *link = join(Order::left(block), Order::right(block));
        Order::left(block) = Order::right(block) = nullptr;
    }

    /// The one behind `block`; null if it is the last.
    Block* next(const Block* block) const {
        Block* found = nullptr;
        for (Block* at = root_; at != nullptr;) {
            if (Order::before(block, at)) {
                found = at;
                at = Order::left(at);
            } else {
                at = Order::right(at);
            }
        }
        return found;
    }

    /// The one before `block`; null if it is the first.
    Block* previous(const Block* block) const {
        Block* found = nullptr;
        for (Block* at = root_; at != nullptr;) {
            if (Order::before(at, block)) {
                found = at;
                at = Order::right(at);
            } else {
                at = Order::left(at);
            }
        }
        return found;
    }

    /// The last one, or null.
    Block* last() const {
        Block* at = root_;
        while (at != nullptr && Order::right(at) != nullptr)
            at = Order::right(at);
        return at;
    }

    bool empty() const { return root_ == nullptr; }

  protected:
    Block* root() const { return root_; }

  private:
    static std::uint32_t priority(const Block* block) {
        std::uint32_t hash = block->index * 0x9E3779B1U;
        hash ^= hash >> 15;
        return hash * 0x85EBCA77U;
    }

    /// Divides `tree` into what comes before `pivot` and what comes after it.
    static void split(Block* tree, const Block* pivot, Block** low, Block** high) {
        while (tree != nullptr) {
            if (Order::before(tree, pivot)) {
                *low = tree;
                low = &Order::right(tree);
                tree = Order::right(tree);
            } else {
                *high = tree;
                high = &Order::left(tree);
                tree = Order::left(tree);
            }
        }
        *low = nullptr;
        *high = nullptr;
    }

    /// Joins two trees; all of `low` comes before all of `high`.
    static Block* join(Block* low, Block* high) {
        Block* root = nullptr;
        Block** link = &root;
        while (low != nullptr && high != nullptr) {
            if (priority(low) > priority(high)) {
                *link = low;
                link = &Order::right(low);
                low = Order::right(low);
            } else {
                *link = high;
                link = &Order::left(high);
                high = Order::left(high);
            }
        }
        *link = low != nullptr ? low : high;
        return root;
    }

    Block* root_ = nullptr;
};

} // namespace cachealloc
