#pragma once

#include "core/pool/address_map.h"
#include "core/pool/best_fit_tree.h"
#include "core/pool/block_arena.h"
#include "core/pool/block_list.h"
#include "core/pool/gauge.h"

#include <atomic>
#include <cstdint>
#include <mutex>

namespace cachealloc {

/// The pool's back: segments, their blocks in address order, and the free ones in best-fit trees:
/// small and large requests live in segments of their own, and so do those too large to share one.
///
/// Invariant: under the lock, each segment is wholly covered by its blocks, no two neighbours are
/// both `free`, every `free` block is in its tree, and every wholly free segment is in the cold
/// list in the order in which it became so. Only settled blocks are ever put in.
///
/// Thread-safe; one lock, never held across a driver call.
class Heap {
  public:
    /// `map` and `arena` must outlive the heap; `owner` is noted in every segment. Segments made
    /// for requests of `max_split` bytes or more are never split, and serve only such requests,
    /// those that leave less than `max_waste` of them unused (as PyTorch's max_split_size_mb and
    /// max_non_split_rounding_mb).
    Heap(AddressMap& map, BlockArena& arena, DevicePool& owner, std::uint64_t max_split,
         std::uint64_t max_waste)
        : map_(map), arena_(arena), owner_(owner), max_split_(max_split), max_waste_(max_waste) {}

    /// Which free blocks a request may be cut from.
    enum class Reach {
        modest,  ///< not from a segment much larger than the request that it would pin: one that is
                 ///< wholly free, or the tail of one that a large block has for itself
        any,     ///< from any segment for requests of this kind
        foreign, ///< from segments for other kinds of request: better than no memory at all
    };

    /// Cuts a block of `size` bytes out of the smallest free block that fits (lowest address among
    /// equals). Null if none fits. The caller owns the result. O(log n).
    Block* take(std::uint64_t size, Reach reach = Reach::any);

    /// Puts a settled block back and merges it with free neighbours. O(log n).
    void put(Block* block);

    /// The same for a chain through Block::link, under one lock.
    void put_chain(Block* chain);

    /// Adds a segment that the memory source just returned and cuts a block of `size` bytes from it
    /// for the caller. `small` says which requests it serves. Null if the host has no memory for
    /// descriptors; the caller gives the memory back then.
    Block* add_segment(DeviceAddress base, std::uint64_t bytes, bool small, std::uint64_t size);

    /// Takes the wholly free segment that has been so for longest out of the heap and hides it from
    /// the address map, so that its memory can be given back. With `at_least`, the coldest one that
    /// has that many bytes. Null if there is none. Exported segments are never taken.
    Segment* take_coldest(std::uint64_t at_least);

    /// The same with the coldest one for large requests.
    Segment* take_coldest_large();

    /// The same with the smallest one of at least `bytes`, or the largest if none has that many.
    /// O(wholly free segments).
    Segment* take_covering(std::uint64_t bytes);

    /// Forgets a segment from take_coldest() whose memory was given back.
    void retire(Segment* segment);

    /// Undoes take_coldest() when the memory could not be given back.
    void restore(Segment* segment);

    /// Hides every segment (its context is ending), or shows them again.
    void hide_all();
    void show_all();

    /// Calls visit(const Segment&) for every segment, under the lock. O(segments).
    template <class Visit>
    void visit(Visit visit) const {
        const std::lock_guard lock(mutex_);
        for (const Segment* at = segments_; at != nullptr; at = at->next)
            visit(*at);
    }

    /// The context is gone for good: forgets every segment and recycles every descriptor, so that
    /// nothing is found at these addresses when they come back as another context's memory. No
    /// other call may be running or come later.
    void forget_all();

    struct Totals {
        std::uint64_t reserved = 0;     ///< bytes of all segments
        std::uint64_t free_in_tree = 0; ///< settled free bytes
        std::uint64_t largest_free = 0; ///< the largest settled free block
        std::uint64_t segments = 0;
        std::uint64_t splits = 0; ///< times a block was cut in two
        std::uint64_t reserved_peak = 0;
    };
    /// O(log blocks).
    Totals totals() const;

    /// As torch.cuda.memory_stats() counts them; memory that is not of a classic segment is of the
    /// large class.
    struct Statistics {
        GaugeSet segments;             ///< classic ones
        GaugeSet reserved;             ///< bytes of all memory
        GaugeSet inactive_split;       ///< what is free between active blocks of classic segments
        GaugeSet inactive_split_bytes; ///< so cannot be given back
        Gauge oversize_segments;       ///< of max_split bytes and more
    };
    /// With `pieces` what is free between active blocks is counted anew first; what became of it
    /// since the last time counts as one change. O(1), with `pieces` O(blocks).
    Statistics statistics(bool pieces);

    /// Bytes of segments without a live or streamed block. O(blocks).
    std::uint64_t wholly_free() const;

    std::uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }
    /// Bytes of the segments that take_coldest() could take.
    std::uint64_t releasable() const { return releasable_.load(std::memory_order_relaxed); }
    std::uint64_t reserved_peak() const { return reserved_peak_.load(std::memory_order_relaxed); }

  private:
    /// A wholly free segment above kPinnable is much larger than a request kMuchLarger times
    /// smaller: 40 MiB of small blocks once kept 2 GiB from cuMemGetInfo and from other programs.
    static constexpr std::uint64_t kPinnable = 64 * kMiB;
    static constexpr std::uint64_t kMuchLarger = 8;

    /// Blocks behind the best fit that a modest request looks at.
    static constexpr int kOthers = 8;

    BestFitTree& tree(const Segment& segment) {
        return segment.small ? small_ : segment.unsplit ? unsplit_ : large_;
    }
    Block* best_shared(const BestFitTree& tree, std::uint64_t size, Reach reach) const;
    Block* best_unsplit(std::uint64_t size) const;
    Block* best_foreign(std::uint64_t size) const;
    template <class Wanted>
    Segment* take_first(Wanted wanted);
    Segment* take_out(Segment* segment);
    static bool pins(const Block* block, std::uint64_t size);
    Block* cut(Block* block, std::uint64_t size);
    void put_locked(Block* block);
    void add_free(Block* block);
    void remove_free(Block* block);
    void link_segment(Segment* segment);
    void unlink_segment(Segment* segment);
    void link_warmest(Segment* segment);
    void unlink_cold(Segment* segment);
    Segment* make_segment();
    void count_segment(const Segment& segment, std::int64_t sign);
    void count_pieces();

    AddressMap& map_;
    BlockArena& arena_;
    BlockList list_{map_, arena_};
    DevicePool& owner_;
    const std::uint64_t max_split_;
    const std::uint64_t max_waste_;
    mutable std::mutex mutex_;
    BestFitTree small_;
    BestFitTree large_;
    BestFitTree unsplit_;
    Segment* segments_ = nullptr;
    Segment* coldest_ = nullptr;
    Segment* warmest_ = nullptr;
    Segment* spare_segments_ = nullptr;
    std::uint64_t free_in_tree_ = 0;
    std::uint64_t splits_ = 0;
    std::uint64_t segment_count_ = 0;
    Statistics statistics_;
    std::atomic<std::uint64_t> releasable_{0};
    std::atomic<std::uint64_t> reserved_{0};
    std::atomic<std::uint64_t> reserved_peak_{0};
};

} // namespace cachealloc
