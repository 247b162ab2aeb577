#pragma once

#include "core/pool/block.h"
#include "core/pool/size_rules.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace cachealloc {

/// Blocks freed in the order of one stream, which may not have come that far: by exact size and
/// stream. Each holds an event that stands for its free (Block::event).
///
/// Invariant: a lane holds the blocks of one size and one stream in the order of their arrival; no
/// lane is empty; turns are unique and rise with the arrival. Streams are told apart by a number
/// that never comes back, so a lane of a stream that is gone serves no other stream at once: it is
/// only emptied from its old end, as events finish.
///
/// Thread-safe, one short lock. Nobody asks about an event under it: oldest() names a block and
/// take() takes it out only if it is still the one.
class StreamLimbo {
  public:
    /// One lane is made for each block at most, and each block holds an event, of which there are
    /// no more than this.
    static constexpr std::uint32_t kMostBlocks = 4096;
    static constexpr std::uint32_t kAny = ~0U;

    /// Adds a block, whose bin and event are set. No more than kMostBlocks may be in here.
    void push(Block* block, std::uint64_t stream);

    /// Takes out the stream's newest block of the bin, or returns null. O(streams of that bin).
    Block* take_newest(std::uint32_t bin, std::uint64_t stream);

    /// A block as it was when somebody looked.
    struct Seen {
        Block* block = nullptr; ///< null: none; not to be read before take() gave it
        std::uint64_t turn = 0;
        std::uint64_t stream = 0;
        std::uint32_t event = 0;
        std::uint32_t lane = 0;
    };
    /// The oldest block, of those that are the oldest of their lane, with a turn above `after`.
    /// `bin` may be kAny. O(lanes looked at).
    Seen oldest(std::uint32_t bin, std::uint64_t after = 0) const;

    /// Takes out what oldest() saw; null if somebody else has.
    Block* take(const Seen& seen);

    /// Forgets all blocks; its memory costs next to nothing then. What oldest() saw is gone.
    void clear();

    std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
    std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  private:
    struct Lane {
        std::uint64_t stream;
        Block* oldest;
        Block* newest;
        std::uint32_t bin;
        std::uint32_t next;     ///< lane of the same bin, or of the free list; 0 = none
        std::uint32_t previous; ///< of the same bin
    };
    static constexpr std::uint32_t kQueues = BinIndex::kBins + 1; ///< the last: BinIndex::kNone

    std::uint32_t find_lane(std::uint32_t bin, std::uint64_t stream) const;
    std::uint32_t make_lane(std::uint32_t bin, std::uint64_t stream);
    void drop_lane(std::uint32_t index);
    void remove(std::uint32_t lane, Block* block);
    void look(std::uint32_t bin, std::uint64_t after, Seen& best) const;

    mutable std::mutex mutex_;
    std::atomic<std::uint64_t> count_{0};
    std::atomic<std::uint64_t> bytes_{0};
    std::uint64_t turn_ = 0;
    std::uint32_t lanes_made_ = 0;
    std::uint32_t spare_lane_ = 0;
    std::array<Lane, kMostBlocks + 1> lanes_{};          ///< from 1 on
    std::array<std::uint32_t, kQueues> first_{};         ///< lane of each bin, 0 = none
    std::array<std::uint64_t, kQueues / 64 + 1> used_{}; ///< one bit per bin that has a lane
};

} // namespace cachealloc
