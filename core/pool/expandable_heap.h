#pragma once

#include "core/pool/address_tree.h"
#include "core/pool/affinity.h"
#include "core/pool/best_fit_tree.h"
#include "core/pool/block_list.h"
#include "core/pool/heap.h"
#include "core/pool/range.h"
#include "core/pool/stitches.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace cachealloc {

/// The pool's back where its memory is growable: one range of addresses that gets memory as the
/// program needs it, and stitches, second mappings of pieces of it that lie apart.
///
/// A request is placed where the last one in the same state of the program was, else by best fit,
/// else in an idle stitch whose pieces are free. Requests up to kSmallest are cut from slabs of
/// kGranule bytes, so that a small long-lived block cannot spoil large memory: a block has a colour
/// (Block::small), and free neighbours merge only within one. A small free block turns large when
/// it reaches the size of a slab or when no small neighbour is left.
///
/// Invariant: under the lock the range is wholly covered by its blocks, the last of which is what
/// was never mapped (until all is); no two free neighbours have one colour and no two `unmapped`
/// ones touch; every `free` block is in the tree of its colour, large ones also in the address
/// tree. A byte of memory is in somebody's hands through at most one address: while a stitch is
/// live, the blocks of the range behind it are `stitched`. Only settled blocks are put in.
///
/// Thread-safe; one lock, never held across a driver call. What changes what is mapped comes in two
/// steps, around the driver call, and from one thread at a time (the caller's lock): the first
/// holds what the call is about.
class ExpandableHeap {
  public:
    /// Requests up to this share slabs: PyTorch's limit of 1 MiB cost ragged training 1.5 % more
    /// memory in simulations.
    static constexpr std::uint64_t kSmallest = 64 * kKiB;
    static bool is_small(std::uint64_t size) { return size <= kSmallest; }

    /// Requests up to this are never stitched: pieces that are free for one lie together.
    static constexpr std::uint64_t kNeverStitched = kGranule;

    /// As Heap's.
    ExpandableHeap(AddressMap& map, BlockArena& arena, DevicePool& owner)
        : map_(map), arena_(arena), list_(map, arena), owner_(owner) {}

    /// Takes over reserved addresses. False if the host has no memory for them.
    bool begin(DeviceAddress base, std::uint64_t bytes);

    struct Request {
        std::uint64_t size;
        std::uint64_t state; ///< Affinity::key()
    };

    /// A block of `size` bytes. For small requests: modest looks into slabs, any cuts a new slab
    /// from free memory, foreign cuts from what is too little for a slab; for large ones foreign
    /// also looks into slabs. Null if nothing fits. O(log n), and O(stitches) if no block fits.
    Block* take(const Request& request, Heap::Reach reach);

    /// Puts settled blocks back: one, or a chain through Block::link. `now` is a reading of the
    /// fence clock. A stitch's block leaves its pieces and makes it idle. O(log n) a block or
    /// piece.
    void put(Block* block, std::uint64_t now);
    void put_chain(Block* chain, std::uint64_t now);

    // ---- growth

    /// Addresses without memory where a request can grow; 0 bytes: there are none. `fresh`: nothing
    /// that was free before may be part of it.
    PieceRun plan_growth(std::uint64_t size, bool fresh) const;

    /// Bytes that plan_growth() would want.
    std::uint64_t growth(std::uint64_t size) const { return plan_growth(size, false).bytes; }

    struct Grown {
        bool done = false;      ///< false: the host has no memory; nothing was changed
        Block* block = nullptr; ///< null: others took the free part before
    };
    /// Adds memory that was mapped at the start of what plan_growth() named, as runs that lie one
    /// behind the other, each in pieces of equal size; cuts a block for `request` from it if it is
    /// not null.
    struct Mapped {
        PieceRun run;
        std::uint64_t piece;
    };
    Grown add_memory(const Mapped* mapped, std::uint32_t count, const Request* request, bool fresh);

    // ---- stitches

    /// Holds free pieces for `size` bytes, as few runs as possible, and fills a slot with them.
    /// Null: `missing` bytes of memory would have to be added first (0: that would not help). The
    /// slot's runs are what is to be mapped.
    Stitch* plan_stitch(std::uint64_t size, std::uint64_t& missing);

    /// The pieces are mapped at `address`. Null if the host has no memory; then nothing but
    /// abandon_stitch() may follow.
    Block* commit_stitch(Stitch* stitch, DeviceAddress address, const Request& request);

    /// Undoes plan_stitch().
    void abandon_stitch(Stitch* stitch);

    bool stitch_slot_free();

    /// Takes out the idle stitch that was used longest ago of those whose last use has finished:
    /// `finished(reading of the fence clock)`; null if there is none.
    template <class Finished>
    Stitch* take_stitch(Finished finished) {
        const std::lock_guard lock(mutex_);
        Stitch* const stitch = stitches_.oldest(
            [&](const Stitch& candidate) { return finished(candidate.idle_since); });
        if (stitch != nullptr) hide_stitch(*stitch);
        return stitch;
    }
    /// The second mapping has ended; could not be ended.
    void forget_stitch(Stitch* stitch);
    void restore_stitch(Stitch* stitch);

    // ---- giving memory back

    /// Takes out a block of whole free pieces that no stitch maps and whose users have finished,
    /// about the largest. Null if there is none.
    template <class Finished>
    Block* take_pieces(Finished finished) {
        const std::lock_guard lock(mutex_);
        for (Block* at = large_.largest(); at != nullptr && at->size >= kGranule;
             at = large_.previous(at)) {
            const PieceRun run = range_.unaliased(range_.whole_pieces(at->address, at->size));
            if (run.bytes == 0 || !finished(at->stamp)) continue;
            if (Block* const block = hold_pieces(at, run)) return block;
        }
        return nullptr;
    }
    /// The pieces were given back; could not be.
    void forget_pieces(Block* block);
    void restore_pieces(Block* block);

    // ---- the rest

    /// What has memory and lies together, the first such run that ends above `address`; 0 bytes:
    /// none. O(blocks). And what stitch `index` (below Stitches::kSlots) maps again; 0 bytes: none.
    PieceRun mapped_above(DeviceAddress address) const;
    PieceRun aliased_by(std::uint32_t index) const;

    /// Calls visit(const Block&) for every block of the range, then of the stitches, under the
    /// lock.
    template <class Visit>
    void visit_blocks(Visit visit) {
        const std::lock_guard lock(mutex_);
        for (const Block* block = segment_.first; block != nullptr; block = block->next)
            visit(*block);
        stitches_.each([&](const Stitch& stitch) { visit(*stitch.first); });
    }

    /// As Heap's.
    void hide_all();
    void show_all();
    void forget_all();
    Heap::Totals totals() const;

    /// Bytes of whole pieces without a live or streamed byte. O(blocks).
    std::uint64_t wholly_free() const;

    bool begun() const { return begun_.load(std::memory_order_acquire); }
    std::uint64_t mapped() const { return mapped_.load(std::memory_order_relaxed); }
    /// The same with its history.
    Gauge mapped_bytes() const;
    std::uint64_t affinity_hits() const { return affinity_hits_.load(std::memory_order_relaxed); }
    std::uint64_t stitches_used() const { return stitches_used_.load(std::memory_order_relaxed); }

  private:
    static constexpr std::uint32_t kMostRuns = Stitch::kMostRuns;
    struct Runs {
        std::array<PieceRun, kMostRuns> run; ///< largest first
        std::uint32_t count = 0;
        std::uint64_t bytes = 0;
    };

    bool is_free(const Block* block, bool small) const;
    Block* place(const Request& request);
    Block* recall(const Request& request);
    Block* cut_slab(Block* slab, std::uint64_t size);
    Block* cut(Block* block, std::uint64_t size);
    Block* carve(Block* free, DeviceAddress address, std::uint64_t size);
    Block* merge(Block* block);
    void put_locked(Block* block, std::uint64_t now);
    void put_back(Block* block);
    void add_free(Block* block);
    void remove_free(Block* block);
    bool can_use(const Stitch& stitch, std::uint64_t size) const;
    Block* use(Stitch& stitch, std::uint64_t size);
    bool hold(Stitch& stitch, std::uint64_t size);
    void let_go(Stitch& stitch);
    void hide_stitch(Stitch& stitch);
    void drop(Stitch& stitch);
    void add_hole(Block* hole);
    void remove_hole(Block* hole);
    void fill_hole(Block* block);
    static PieceRun next_run(const Block*& from);
    Block* hold_pieces(Block* free, PieceRun run);
    Runs largest_runs() const;
    bool live(const Block* block) const;
    void change_mapped(std::int64_t by);

    AddressMap& map_;
    BlockArena& arena_;
    BlockList list_;
    DevicePool& owner_;
    mutable std::mutex mutex_;
    Segment segment_;
    Range range_;
    BestFitTree small_;
    BestFitTree large_;
    AddressTree large_by_address_;
    BestFitTree holes_;
    AddressTree holes_by_address_;
    Stitches stitches_;
    Affinity affinity_;
    Gauge mapped_bytes_;
    std::uint64_t free_in_trees_ = 0;
    std::uint64_t splits_ = 0;
    std::atomic<bool> begun_{false};
    std::atomic<std::uint64_t> mapped_{0};
    std::atomic<std::uint64_t> affinity_hits_{0};
    std::atomic<std::uint64_t> stitches_used_{0};
};

} // namespace cachealloc
