#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace cachealloc::tools {

/// Blocks of memory, live and free, for policies that place by best fit.
///
/// Invariant: blocks never overlap; of neighbours that touch and have the same owner no two are
/// free; each free block is in the set of its kind.
class FreeBlocks {
  public:
    struct Block {
        std::uint64_t bytes = 0;
        std::uint64_t owner = 0; ///< blocks of different owners never merge
        std::uint8_t kind = 0;   ///< 0 or 1: which requests it serves
        bool free = true;
    };
    using Place = std::map<std::uint64_t, Block>::iterator;

    /// A new free block; merges with what it touches. O(log n), as everything here.
    void add(std::uint64_t address, const Block& block) {
        release(blocks_.emplace(address, block).first);
    }

    /// The smallest free block of that kind that holds `bytes`, the lowest among equals; end() if
    /// there is none.
    Place find(std::uint8_t kind, std::uint64_t bytes) {
        const auto found = free_[kind].lower_bound({bytes, 0});
        return found == free_[kind].end() ? end() : blocks_.find(found->second);
    }

    /// The same, but the block that ends at `last` only where no other holds `bytes`.
    Place find_before(std::uint8_t kind, std::uint64_t bytes, std::uint64_t last) {
        auto found = free_[kind].lower_bound({bytes, 0});
        if (found == free_[kind].end()) return end();
        const auto other = std::next(found);
        if (found->first + found->second == last && other != free_[kind].end()) found = other;
        return blocks_.find(found->second);
    }

    /// Makes a free block live. Its rest behind `bytes` becomes a block of its own if it has at
    /// least `least_rest` bytes. Says whether it did.
    bool take(Place place, std::uint64_t bytes, std::uint64_t least_rest) {
        Block& block = place->second;
        free_[block.kind].erase({block.bytes, place->first});
        block.free = false;
        const std::uint64_t rest = block.bytes - bytes;
        if (rest == 0 || rest < least_rest) return false;
        block.bytes = bytes;
        blocks_.emplace(place->first + bytes, Block{rest, block.owner, block.kind, true});
        free_[block.kind].insert({rest, place->first + bytes});
        return true;
    }

    void release(Place place) {
        place->second.free = true;
        if (const Place next = std::next(place); next != end() && joins(place, next)) {
            free_[next->second.kind].erase({next->second.bytes, next->first});
            place->second.bytes += next->second.bytes;
            blocks_.erase(next);
        }
        if (place != blocks_.begin()) {
            if (const Place before = std::prev(place); joins(before, place)) {
                free_[before->second.kind].erase({before->second.bytes, before->first});
                before->second.bytes += place->second.bytes;
                blocks_.erase(place);
                place = before;
            }
        }
        free_[place->second.kind].insert({place->second.bytes, place->first});
    }

    /// Forgets a free block.
    void remove(Place place) {
        free_[place->second.kind].erase({place->second.bytes, place->first});
        blocks_.erase(place);
    }

    /// Bytes of the free block of `owner` that ends at `address`; 0 if none does.
    [[nodiscard]] std::uint64_t free_below(std::uint64_t address, std::uint64_t owner) const {
        const auto above = blocks_.lower_bound(address);
        if (above == blocks_.begin()) return 0;
        const auto& [base, block] = *std::prev(above);
        const bool ends_here = base + block.bytes == address;
        return block.free && block.owner == owner && ends_here ? block.bytes : 0;
    }

    Place at(std::uint64_t address) { return blocks_.find(address); }
    Place begin() { return blocks_.begin(); }
    Place end() { return blocks_.end(); }
    [[nodiscard]] std::uint64_t largest_free() const {
        std::uint64_t most = 0;
        for (const auto& blocks : free_)
            if (!blocks.empty() && blocks.rbegin()->first > most) most = blocks.rbegin()->first;
        return most;
    }

  private:
    static bool joins(Place left, Place right) {
        return left->second.free && right->second.free &&
               left->second.owner == right->second.owner &&
               left->first + left->second.bytes == right->first;
    }

    std::map<std::uint64_t, Block> blocks_;                     ///< by address
    std::set<std::pair<std::uint64_t, std::uint64_t>> free_[2]; ///< bytes, address
};

} // namespace cachealloc::tools
