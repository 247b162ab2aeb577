#pragma once

#include "core/pool/block.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace cachealloc {

/// Makes block descriptors for all pools of a process and names each by a 32-bit index, so that a
/// shared stack's head fits a descriptor and a change counter into one atomic word.
///
/// Invariant: the memory of a descriptor is never given back and never becomes anything else, so
/// reading one through a stale pointer is harmless. Index 0 is no block.
class BlockArena {
  public:
    /// A descriptor in state `unused`, everything but index reset. Null when the host has no memory
    /// or 2^24 descriptors exist. Thread-safe; takes a lock; O(1) amortised.
    Block* make();

    /// Takes a descriptor back; nobody may hand it out any more. Thread-safe.
    void recycle(Block* block);

    /// The descriptor with this index. Lock-free, O(1). `index` must have come from make().
    Block* at(std::uint32_t index) const {
        return chunks_[index / kChunkBlocks].load(std::memory_order_acquire) + index % kChunkBlocks;
    }

  private:
    static constexpr std::uint32_t kChunkBlocks = 4096;
    static constexpr std::uint32_t kChunks = 4096;

    bool grow();

    std::mutex mutex_;
    Block* free_ = nullptr;
    std::uint32_t chunk_count_ = 0;
    std::array<std::atomic<Block*>, kChunks> chunks_{};
};

} // namespace cachealloc
