#pragma once

#include "core/memory_stats.h"
#include "core/options.h"
#include "core/order/fences.h"
#include "core/order/stream_events.h"
#include "core/pool/exact_cache.h"
#include "core/pool/expandable_heap.h"
#include "core/pool/heap.h"
#include "core/pool/limbo.h"
#include "core/pool/live_peaks.h"
#include "core/pool/memory_source.h"
#include "core/pool/stream_limbo.h"
#include "core/pool_observer.h"

#include <atomic>
#include <cstdint>
#include <mutex>

namespace cachealloc {

enum class PoolStatus {
    done,
    pass_through,  ///< the pool serves nothing now (or never this size): ask the driver itself
    out_of_memory, ///< everything that could be given back was; ask the driver for the last word
    over_limit,    ///< the same, for the process may not hold more; the driver is not to be asked
    not_live,      ///< the address is the pool's, but no live block starts there
    failed,        ///< the native code is in PoolResult::native; nothing was changed
};

struct PoolResult {
    PoolStatus status = PoolStatus::done;
    DeviceAddress address = 0;
    int native = 0;
    bool waited = false;    ///< free(): the host has waited for all work before it
    std::uint64_t size = 0; ///< allocate(): bytes that the block occupies
};

/// Whether the native counterpart of a free waits for the context's earlier work. Only such frees
/// give the right to make later work wait for it.
enum class FreeKind {
    waits_unnoticed, ///< natively it waits; here nobody would notice that it does not
    waits_on_device, ///< natively it waits; here all later work of the context does, the host not
    waits_on_host,   ///< natively it waits, and so it must here: somebody may lean on it
    does_not_wait,   ///< natively it does not wait
};

/// The stream that a stream-ordered call names.
struct NamedStream {
    std::uint64_t id = 0;       ///< never given to another stream
    StreamHandle handle = 0;    ///< the platform's, valid during the call
    bool reuse_finished = true; ///< may take what others freed, once it is done
    bool reuse_waiting = true;  ///< may be made to wait for what others freed
};

/// Stream-ordered memory as a program may ask about it, in bytes.
struct AsyncMemory {
    std::uint64_t used = 0; ///< live blocks handed out by allocate_async()
    std::uint64_t used_peak = 0;
    std::uint64_t reserved = 0; ///< the same and all that is free
    std::uint64_t reserved_peak = 0;
};

/// What a pool has done so far. Current values are exact when no call is running.
struct PoolStatistics {
    std::uint64_t allocations = 0;
    std::uint64_t frees = 0;
    std::uint64_t allocated_bytes = 0; ///< of live blocks, as rounded
    std::uint64_t allocated_bytes_peak = 0;
    std::uint64_t requested_bytes = 0; ///< of live blocks, as asked for
    std::uint64_t reserved_bytes = 0;
    std::uint64_t reserved_bytes_peak = 0;
    std::uint64_t cached_bytes = 0; ///< reserved and not allocated
    std::uint64_t largest_free_bytes = 0;
    std::uint64_t segments = 0;
    std::uint64_t thread_hits = 0; ///< allocations by where they were served
    std::uint64_t shared_hits = 0;
    std::uint64_t limbo_hits = 0;
    std::uint64_t tree_hits = 0;
    std::uint64_t segment_allocs = 0;
    std::uint64_t segment_frees = 0;
    std::uint64_t splits = 0;
    std::uint64_t fences = 0;
    std::uint64_t barriers = 0;
    std::uint64_t host_waits = 0;
    std::uint64_t host_wait_ns = 0;
    std::uint64_t native_waits = 0; ///< of the host waits: frees that waited as natively
    std::uint64_t native_wait_ns = 0;
    std::uint64_t set_aside = 0;
    std::uint64_t async_allocations = 0; ///< of the allocations: by stream-ordered calls
    std::uint64_t async_frees = 0;       ///< frees in the order of a stream
    std::uint64_t stream_hits = 0;       ///< allocations served from such frees
    std::uint64_t stream_waits = 0;      ///< waits put on one stream
    std::uint64_t out_of_memory = 0;
    // With expandable segments:
    std::uint64_t growths = 0;       ///< allocations served by memory mapped for them
    std::uint64_t pieces_mapped = 0; ///< pieces that the range got
    std::uint64_t unmapped_bytes = 0;
    std::uint64_t stitches_made = 0; ///< each is an allocation too
    std::uint64_t stitches_used = 0; ///< allocations served by one that existed
    std::uint64_t stitches_ended = 0;
    std::uint64_t remaps = 0; ///< runs of pieces that were mapped a second time
    /// Requests that no free block could serve although the pool held more than the program needs.
    std::uint64_t fragmentation_misses = 0;
    std::uint64_t affinity_hits = 0; ///< placed where the last request in the same state was
};

/// One context's pool: exact-size caches in front, a best-fit heap behind, limbo for what is freed
/// but perhaps still used, and the order that makes reuse safe.
///
/// Invariant: a block is handed out only when everything that used it before has finished, or when
/// everything submitted from then on waits for that (see Fences for when which of the two is
/// asked).
///
/// Thread-safe. A hit takes no lock, makes no system call, allocates nothing and calls no driver; a
/// free makes one StreamOrder::record() except at level `ordered`. Nothing throws.
class DevicePool {
  public:
    /// All references must outlive the pool, as must `observer`, which may be null.
    DevicePool(AddressMap& map, BlockArena& arena, MemorySource& source, StreamOrder& order,
               OrderLevel level, const Options& options, PoolObserver* observer = nullptr);

    /// `bytes` of device memory, at least 1. Returns done, pass_through, out_of_memory, over_limit
    /// or failed.
    PoolResult allocate(std::uint64_t bytes);

    /// Frees `block`, which AddressMap::find(address) just named. Returns done, not_live or failed
    /// (the block stays live then, as natively).
    PoolResult free(Block* block, DeviceAddress address, FreeKind kind);

    /// `bytes` for work on `stream` and what the program orders behind it, at levels `ordered` and
    /// `fenced`. Never makes other streams wait. Returns as allocate(); pass_through at the other
    /// levels.
    PoolResult allocate_async(std::uint64_t bytes, const NamedStream& stream);

    /// Frees `block` in the order of `stream`, which belongs to this pool's context. Never waits.
    /// Returns done, not_live or failed (the block stays live then).
    PoolResult free_async(Block* block, DeviceAddress address, const NamedStream& stream);

    /// Whether allocate_async() has ever handed anything out; sequentially consistent.
    bool served_async() const { return slow_.async_allocations.load() != 0; }

    AsyncMemory async_memory();
    /// Starts the peaks anew from what holds now.
    void reset_used_peak();
    void reset_reserved_peak();

    /// Gives back what is free and settled until async_memory().reserved is at most `keep`. Returns
    /// bytes.
    std::uint64_t trim_to(std::uint64_t keep);

    /// Frees `block` beside an open capture: nothing may be recorded, so it is set aside until
    /// captures_ended(). Returns done or not_live.
    PoolResult set_aside(Block* block, DeviceAddress address);

    /// What was set aside gets one fence, if one can be recorded now, and is only polled. To be
    /// called when the last capture has ended; misses and trim() call it too.
    void captures_ended();

    /// Steps down from level `ordered` to `fenced`: from now on frees are fenced. What was freed
    /// before stays settled, so the caller makes every stream whose work is not ordered behind all
    /// work so far wait for that. False if the pool was not at level `ordered`.
    bool leave_ordered();

    /// Steps down to level `finished`, before the call that makes it necessary goes on. With
    /// `may_wait` it waits for the earlier users of what barriers have settled so far; else nothing
    /// cached is handed out until they have finished.
    void enter_finished(bool may_wait);

    /// Gives everything back that is free and settled, without waiting for fences (growable memory:
    /// once all work so far has finished, which it waits for). Returns bytes.
    std::uint64_t trim();

    /// The same, but waits first for the fences of frees that natively wait. Returns bytes.
    std::uint64_t release_all();

    /// The program has met an error: asks whether the context is lost, so that nothing more is
    /// served.
    void check_for_fault();

    /// The context is ending: its addresses become unknown. revive() undoes that when it lived on;
    /// bury() forgets all of them for good, after which the pool must not be used any more.
    void kill() {
        heap_.hide_all();
        range_.hide_all();
    }
    void revive() {
        heap_.show_all();
        range_.show_all();
    }
    void bury();

    /// The program is about to need memory that only single driver allocations have (an IPC
    /// handle): from now on nothing is allocated in growable memory. What is free there goes back
    /// to the driver as it finishes. Without expandable segments it changes nothing.
    void serve_from_segments();

    /// Calls visit(PieceRun, bool alias) for all growable memory, by the addresses where it lies
    /// together, and for each second mapping. Nothing is mapped or unmapped meanwhile; visit() may
    /// call the driver.
    template <class Visit>
    void visit_growable(Visit visit) {
        const std::lock_guard token(growth_token_);
        for (PieceRun run = range_.mapped_above(0); run.bytes != 0;
             run = range_.mapped_above(run.end()))
            visit(run, false);
        for (std::uint32_t i = 0; i < Stitches::kSlots; ++i) {
            if (const PieceRun run = range_.aliased_by(i); run.bytes != 0) visit(run, true);
        }
    }

    /// Waits until the earlier users of every block handed out so far have finished: a writer that
    /// no barrier holds up is about to learn an address. Returns done or failed.
    PoolResult await_earlier_users();

    /// Bytes that a program may count as free on top of what the driver says: not what was freed in
    /// the order of a stream that has not come that far. O(blocks).
    std::uint64_t wholly_free_bytes();

    /// Allocations served and frees so far. O(threads), no lock.
    std::uint64_t changes() const {
        return cache_.total(Counter::allocations) + cache_.total(Counter::frees);
    }

    PoolStatistics statistics() const;

    /// The same as torch.cuda.memory_stats() tells it. "inactive_split" is brought up to date where
    /// `pieces` says so, and before cached memory is given back for lack of memory: what happened
    /// in between counts as one change. O(threads), with `pieces` O(blocks).
    MemoryStats memory_stats(bool pieces = true);
    Fences& fences() { return fences_; }

  private:
    /// Reasons to leave the fast path; bits of special_.
    enum Special : std::uint32_t {
        kLost = 1,     ///< the context is dead after a fault: the driver answers everything
        kHold = 2,     ///< nothing cached is handed out until hold_ has finished
        kSegments = 4, ///< growable memory is not handed out any more
    };

    struct SlowCounters {
        std::atomic<std::uint64_t> limbo_hits, tree_hits, segment_allocs, segment_frees;
        std::atomic<std::uint64_t> fences, barriers, host_waits, host_wait_ns, set_aside, oom;
        std::atomic<std::uint64_t> native_waits, native_wait_ns;
        std::atomic<std::uint64_t> async_allocations, async_frees, stream_hits, stream_waits;
        std::atomic<std::uint64_t> alloc_retries, sync_all, maps, unmaps, oom_rejections;
        std::atomic<std::uint64_t> growths, pieces_mapped, unmapped_bytes;
        std::atomic<std::uint64_t> stitches_made, stitches_ended, remaps, fragmentation_misses;
    };
    /// Blocks of max_split_ bytes and more; they are rare.
    struct Oversize {
        std::atomic<std::int64_t> allocated{0}, freed{0}, peak{0};
        void took();
    };
    template <class Value>
    static void count(std::atomic<Value>& counter, Value by = 1) {
        counter.fetch_add(by, std::memory_order_relaxed);
    }

    struct Request {
        std::uint64_t bytes;   ///< as asked for
        std::uint64_t rounded; ///< as cut
        std::uint32_t bin;
        ThreadCache& mine;
        const NamedStream* stream = nullptr; ///< of a stream-ordered call
    };

    PoolResult hand_out(Block* block, const Request& request);
    /// The same, as a part of a hit: a call costs 1 ns.
    [[gnu::always_inline]] PoolResult make_live(Block* block, const Request& request);
    PoolResult serve(Block* block, const Request& request);
    bool cached(std::uint64_t rounded) const {
        return rounded <= cached_up_to_.load(std::memory_order_relaxed);
    }
    void put(Block* block);
    void put_chain(Block* chain);
    std::uint64_t reserved() const { return heap_.reserved() + range_.mapped(); }
    bool take_live(Block* block, DeviceAddress address);
    bool hold_is_over();
    void set_aside_owned(Block* block);
    bool order_later_work(Stamp stamp);
    Block* note_settled(Block* block) {
        if (block != nullptr) count_settled(*block);
        return block;
    }
    Block* note_settled_chain(Block* chain);
    PoolResult settle_freed(Block* block, FreeKind kind, Stamp stamp, ThreadCache& mine);
    /// From so many growths on, in which as much was free but scattered, blocks larger than
    /// kAlwaysCached go where they can merge when they are freed.
    static constexpr std::uint32_t kScatteredGrowths = 8;
    static constexpr std::uint64_t kAlwaysCached = 64 * kKiB;
    void keep(Block* block, ThreadCache& mine);
    void count_free(const Block* block, ThreadCache& mine, bool settled);
    void count_settled(const Block& block);
    static LivePeaks::Amount amount(const Block& block) {
        return {BinIndex::size_class(block.bin), block.size,
                block.size - block.requested.load(std::memory_order_relaxed)};
    }
    PoolResult keep_live(Block* block, OrderResult result);
    template <class Wait>
    OrderResult timed(Wait wait, std::uint64_t* spent_ns = nullptr);
    OrderResult timed_host_wait(Stamp stamp);
    OrderResult wait_as_natively(Stamp stamp);

    // device_pool_miss.cpp: what happens when the caches have nothing
    PoolResult allocate_slow(const Request& request);
    PoolResult allocate_special(const Request& request);
    Block* take(const Request& request, Heap::Reach reach);
    Block* find_settled(const Request& request);
    PoolResult lost_context();
    Block* settle_and_find(const Request& request);
    Block* drain_and_find(const Request& request);
    Block* flush_and_find(const Request& request);
    bool settle_oldest(std::uint32_t bin);
    bool settled(const Block* block) const {
        return fences_.settled(block->stamp, block->barrier_counts);
    }
    bool barrier_is_free() const;

    // device_pool_async.cpp: what is freed and allocated in the order of a stream
    void note_async(const Block* block);
    void forget_async(const Block* block);
    std::uint64_t async_reserved() const;
    Block* find_for_stream(const Request& request);
    Block* pop_settled(std::uint32_t bin);
    Block* take_own(const Request& request);
    Block* take_finished(std::uint32_t bin);
    Block* take_behind_fence(const Request& request);
    Block* take_behind_event(const Request& request);
    bool settle_streams(std::uint32_t most_pending);
    Block* settle_streams_and_find(const Request& request, std::uint32_t most_pending);
    bool finished(const StreamLimbo::Seen& seen);
    Block* await_streams(const Request& request);
    static constexpr std::uint32_t kFewPending = 4; ///< questions that a miss may ask in vain
    static constexpr std::uint32_t kAllPending = ~0U;

    // device_pool_grow.cpp: the driver, growth and release
    enum class Growth { done, no_room, over_limit, impossible };
    Growth grow_segment(const Request& request, Block** block);
    Growth grow(const Request& request, Block** block);
    std::uint64_t segment_bytes(const Request& request) const;
    bool within_slack(const Request& request) const;
    bool pays_to_grow(const Request& request) const;
    Block* make_room(const Request& request, Growth& growth);
    std::uint64_t release_segment(std::uint64_t at_least);
    std::uint64_t release(Segment* segment);
    void note_end(const Block& block);
    void note_all_ends();
    void note_segment(bool allocated, DeviceAddress base, std::uint64_t bytes, bool small);
    void flush_to_heap();
    void settle_what_is_done();

    // device_pool_bounds.cpp: what the pool may hold
    static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
    static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
    std::uint64_t live_bytes() const;
    /// The peak of live bytes as it will be when the request has been served. O(threads).
    std::uint64_t peak_with(const Request& request) const;
    std::uint64_t limit() const;
    std::uint64_t held(std::uint64_t limit);
    bool may_grow(std::uint64_t bytes);
    PoolResult refuse(Growth growth);
    void collect_garbage(const Request& request);
    void shrink_before_growth(const Request& request);
    bool idle();

    // device_pool_expand.cpp: growable memory
    static constexpr std::uint64_t kMissesUntilPlacing = 8;
    bool serves_range() const {
        return range_.begun() && (special_.load(std::memory_order_relaxed) & kSegments) == 0;
    }
    bool grows_range() const { return grows_range_.load(std::memory_order_relaxed); }
    ExpandableHeap::Request placed(const Request& request) const;
    bool begin_range();
    bool prefers_growth(const Request& request) const;
    Growth grow_range(const Request& request, bool fresh, Block** block);
    Growth extend(const PieceRun& room, const ExpandableHeap::Request* request, bool fresh,
                  Block** block);
    Growth extend_for(const ExpandableHeap::Request& request, bool fresh, Block** block);
    Growth stitch(const ExpandableHeap::Request& request, bool may_extend, Block** block);
    bool unmap(const PieceRun& run);
    void note_last_uses();
    bool end_oldest_stitch();
    bool end_stitch(Stitch* stitch);
    void note_fragmentation();
    bool await_all_work();
    std::uint64_t release_pieces(std::uint64_t wanted);
    std::uint64_t release_finished_pieces(std::uint64_t wanted);

    const Options options_;
    const std::uint64_t max_split_ = options_.max_split_bytes();
    PoolObserver* const observer_;
    MemorySource& source_;
    BinIndex bins_;
    ExactCache cache_;
    Heap heap_;
    ExpandableHeap range_;
    std::atomic<bool> grows_range_;
    std::atomic<std::uint64_t> previous_size_{0}; ///< of the last large request the caches lacked
    /// Larger blocks are not cached by exact size any more: that would put equal blocks in another
    /// order each time, and the layout of a periodic program would never repeat.
    std::atomic<std::uint64_t> cached_up_to_{~std::uint64_t{0}};
    std::atomic<std::uint64_t> kept_up_to_{
        ~std::uint64_t{0}}; ///< larger ones do not go there either
    Limbo limbo_;           ///< freed with a fence that may also be waited for
    Limbo polled_;          ///< freed with a fence that is only polled
    Fences fences_;
    StreamLimbo streamed_; ///< freed in the order of a stream
    StreamEvents stream_events_{fences_};
    std::atomic<std::uint64_t> async_used_{0};
    std::atomic<std::uint64_t> async_used_peak_{0};
    std::atomic<std::uint64_t> async_reserved_peak_{0};
    LivePeaks live_{cache_};
    Oversize oversize_;
    std::atomic<std::uint32_t> special_{0};
    std::atomic<Stamp> hold_{0};
    std::mutex transition_;
    Stamp unfenced_until_ =
        0; ///< frees before it had no fence (level `ordered`); under transition_
    std::mutex growth_token_;
    /// Held while free blocks are in nobody's hands on their way to the heap, and while a segment
    /// is on its way to the driver: a thread that has no memory left waits for them rather than
    /// failing (3 of 200 runs of threads beside one that fills the device had a third of it
    /// missing).
    std::mutex moving_mutex_;
    std::mutex release_mutex_;
    std::mutex shrink_mutex_; ///< only ever tried: its holder may be waiting for the device
    std::int64_t release_credit_ = 1LL << 60; ///< bytes; under shrink_mutex_, as the next
    std::uint64_t credited_until_ = 0;
    std::atomic<std::uint64_t> elsewhere_{kUnknown};  ///< held by the process outside the pool
    std::atomic<std::uint32_t> scattered_growths_{0}; ///< growths although as much was free
    std::mutex aside_mutex_;
    Block* aside_ = nullptr;
    std::atomic<bool> any_aside_{false};
    SlowCounters slow_{};
};

} // namespace cachealloc
