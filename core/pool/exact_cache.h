#pragma once

#include "core/pool/block_arena.h"
#include "core/pool/thread_cache.h"
#include "core/pool/thread_index.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace cachealloc {

/// The pool's front: settled blocks by exact size, newest first. A per-thread slot comes before a
/// shared stack per size, because two threads on one stack pay about 107 ns a pair and slots 13
/// (measured, 2 cores).
///
/// Invariant: every block in it is settled, in state `cached`, and carries the bin it is kept
/// under. Taking a block out makes the caller its only owner.
///
/// Thread-safe and lock-free; no allocation except a thread's first use.
class ExactCache {
  public:
    /// `budget`: bytes that the shared stacks may hold; each thread's slots come on top.
    ExactCache(BlockArena& arena, std::uint64_t budget) : arena_(arena), budget_(budget) {
        shared_cache_.shared = true;
    }
    ~ExactCache();
    ExactCache(const ExactCache&) = delete;
    ExactCache& operator=(const ExactCache&) = delete;

    /// The calling thread's cache in this pool.
    ThreadCache& mine() {
        const std::uint32_t index = thread_index();
        ThreadCache* const cache = caches_[index].load(std::memory_order_acquire);
        return cache != nullptr ? *cache : make(index);
    }

    /// The one of threads without an index of their own.
    ThreadCache& of_shared_threads() { return make(kSharedThread); }

    /// The newest block of the bin, or null.
    Block* take(std::uint32_t bin, ThreadCache& mine) {
        std::atomic<Block*>& slot = mine.slots[bin];
        if (slot.load(std::memory_order_relaxed) != nullptr) {
            if (Block* const block = slot.exchange(nullptr, std::memory_order_acquire)) {
                return block;
            }
        }
        return take_shared(bin, mine);
    }

    /// Keeps a block under its bin. Returns null, or a block that belongs into the tree instead:
    /// the given one if it has no bin, an older one of the bin if the budget is spent.
    [[nodiscard]] Block* put(Block* block, ThreadCache& mine) {
        if (block->bin == BinIndex::kNone) return block;
        block->state.store(BlockState::cached, std::memory_order_relaxed);
        Block* const older = mine.slots[block->bin].exchange(block, std::memory_order_acq_rel);
        if (older == nullptr) return nullptr;
        if (!within_budget(older)) return older;
        push(older);
        return nullptr;
    }

    /// Takes everything out, calling `sink(Block*)` for each block.
    template <class Sink>
    void drain(Sink sink) {
        const std::uint32_t limit = thread_index_limit();
        for (std::uint32_t i = 0; i < limit; ++i) {
            ThreadCache* const cache = caches_[i].load(std::memory_order_acquire);
            if (cache == nullptr) continue;
            for (std::atomic<Block*>& slot : cache->slots) {
                if (slot.load(std::memory_order_relaxed) == nullptr) continue;
                if (Block* const block = slot.exchange(nullptr, std::memory_order_acquire)) {
                    sink(block);
                }
            }
        }
        for (std::uint32_t bin = 0; bin < BinIndex::kBins; ++bin) {
            while (Block* const block = pop(bin))
                sink(block);
        }
    }

    /// Sums over all threads that ever used the pool: of all counters, by class; of one.
    /// O(threads).
    std::array<Counters, kSizeClasses> totals() const;
    std::uint64_t total(Counter counter) const;

    /// How many threads have a cache of their own in this pool.
    std::uint32_t threads() const { return threads_.load(std::memory_order_relaxed); }

    /// Whether at most one thread has used the pool so far.
    bool one_thread() const {
        return threads() <= 1 && caches_[kSharedThread].load(std::memory_order_relaxed) == nullptr;
    }

  private:
    template <class Visit>
    void visit(Visit visit) const;
    ThreadCache& make(std::uint32_t index);
    Block* take_shared(std::uint32_t bin, ThreadCache& mine);
    bool within_budget(const Block* block) const;
    void push(Block* block);
    Block* pop(std::uint32_t bin);

    BlockArena& arena_;
    const std::uint64_t budget_;
    std::atomic<std::uint64_t> stacked_bytes_{0};
    std::atomic<std::uint32_t> threads_{0};
    ThreadCache shared_cache_;
    std::array<std::atomic<ThreadCache*>, kThreads> caches_{};
    /// High half: change counter, against a head that went away and came back. Low half: index.
    std::array<std::atomic<std::uint64_t>, BinIndex::kBins> heads_{};
};

} // namespace cachealloc
