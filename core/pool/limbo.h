#pragma once

#include "core/pool/block.h"
#include "core/pool/size_rules.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>

namespace cachealloc {

/// Freed blocks whose earlier users may not be done: a first-in first-out queue per exact size (one
/// more for sizes without a bin).
///
/// Invariant: stamps within a queue rise, up to the order in which concurrent frees arrived; so
/// only its head needs a look, and a head that is not settled hides nothing that matters.
///
/// Thread-safe, one short lock. What "settled" means is the caller's: a predicate over Block.
class Limbo {
  public:
    /// Queues a block; its bin and stamp are set.
    void push(Block* block);

    /// Takes the head of the bin's queue if `settled(head)`, else null.
    template <class Settled>
    Block* pop(std::uint32_t bin, Settled settled) {
        if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
        const std::lock_guard lock(mutex_);
        Block* const head = queues_[bin].head;
        return head != nullptr && settled(head) ? pop_locked(bin) : nullptr;
    }

    /// Takes every settled head of every queue; returns them chained through Block::link. Cost: the
    /// queues that hold anything, plus what is taken.
    template <class Settled>
    Block* drain(Settled settled) {
        if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
        Block* taken = nullptr;
        const std::lock_guard lock(mutex_);
        for (std::uint32_t word = 0; word < used_.size(); ++word) {
            for (std::uint64_t bits = used_[word]; bits != 0; bits &= bits - 1) {
                const std::uint32_t bin =
                    word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
                while (queues_[bin].head != nullptr && settled(queues_[bin].head)) {
                    Block* const block = pop_locked(bin);
                    block->link = taken;
                    taken = block;
                }
            }
        }
        return taken;
    }

    /// What the next choice is about: the oldest block of a bin or, for kAny, of all bins.
    struct Head {
        bool found = false;
        std::uint64_t stamp = 0;
    };
    static constexpr std::uint32_t kAny = ~0U;
    Head head(std::uint32_t bin) const;

    /// The youngest block of all bins.
    Head youngest() const;

    /// Forgets all blocks; its memory costs next to nothing then.
    void clear();

    std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
    std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
    /// Bytes in one bin's queue.
    std::uint64_t bytes(std::uint32_t bin) const;

  private:
    struct Queue {
        Block* head = nullptr;
        Block* tail = nullptr;
        std::uint64_t bytes = 0;
    };
    static constexpr std::uint32_t kQueues = BinIndex::kBins + 1; ///< the last: BinIndex::kNone

    Block* pop_locked(std::uint32_t bin);

    mutable std::mutex mutex_;
    std::atomic<std::uint64_t> count_{0};
    std::atomic<std::uint64_t> bytes_{0};
    std::array<Queue, kQueues> queues_{};
    std::array<std::uint64_t, kQueues / 64 + 1> used_{}; ///< one bit per queue that holds anything
};

} // namespace cachealloc
