#pragma once

#include "core/pool/address_map.h"
#include "core/pool/block_arena.h"

#include <cstdint>

namespace cachealloc {

/// How the blocks of a segment are divided and joined: in its list, in the address map and in the
/// arena at once. Not thread-safe for blocks of one segment: its heap's lock guards them.
class BlockList {
  public:
    /// Both must outlive this object.
    BlockList(AddressMap& map, BlockArena& arena) : map_(map), arena_(arena) {}

    /// Divides `block`, which is in no tree, behind its first `size` bytes (less than it has).
    /// Returns the upper part, in state `freeing` and with what else `block` has; null, with
    /// nothing changed, if the host has no memory for it.
    Block* split(Block* block, std::uint64_t size);

    /// Joins `block` with the one above it, which is in no tree and is gone afterwards.
    void absorb_next(Block* block);

  private:
    AddressMap& map_;
    BlockArena& arena_;
};

} // namespace cachealloc
