#pragma once

#include "core/pool/exact_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace cachealloc {

/// What is live and what is active (live, or freed but not fit for reuse yet), of one class of
/// sizes; as of a moment, or at their peaks.
struct LiveAmounts {
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;
    std::int64_t active = 0;
    std::int64_t active_bytes = 0;
    std::int64_t requested = 0; ///< bytes asked for, of active blocks
};

/// The peaks of all of that, without a shared counter on the hot path (which costs 10 ns with one
/// thread and 32 ns a call with two, measured).
///
/// Invariant: while one thread allocates and frees, none of the amounts is above its peak plus what
/// the thread has handed out beyond its headroom, which is nothing when a call returns. The thread
/// takes from its headroom what it hands out and puts back what becomes free; where that falls
/// below zero, it sums all threads' counters, raises the peaks and gets new headroom: the distance
/// to the nearest peak, of the class and of both together, within the quantum. So peaks are exact
/// with one thread, and with n threads off by at most n * 4 quanta.
///
/// Thread-safe and lock-free.
class LivePeaks {
  public:
    /// Bytes of headroom at most: this, or 1/256 of the peak where that is more, so that programs
    /// with large blocks do not sum at each of them. 1/8 for a pool's only thread, which gives back
    /// what is too much when a second one comes and it frees.
    static constexpr std::int64_t kQuantum = 1 << 20;

    explicit LivePeaks(const ExactCache& cache) : cache_(cache) {}

    /// One block as they are counted.
    struct Amount {
        SizeClass which;
        std::uint64_t bytes;
        std::uint64_t waste; ///< of these, not asked for: most often nothing
    };

    /// The calling thread has handed out a block.
    void took(ThreadCache& mine, const Amount& block) {
        const bool below =
            mine.shared ? take_headroom<true>(mine, block) : take_headroom<false>(mine, block);
        if (below) [[unlikely]]
            renew(mine);
    }

    /// A block has been freed, and is fit for reuse if `settled`.
    void gave(ThreadCache& mine, const Amount& block, bool settled) {
        mine.shared ? give_back<true>(mine, block, settled)
                    : give_back<false>(mine, block, settled);
    }

    /// A block that was freed before has become fit for reuse.
    void settled(ThreadCache& mine, const Amount& block) {
        mine.shared ? change_pending<true>(mine, block, -1)
                    : change_pending<false>(mine, block, -1);
    }

    /// What there is now, by class and together; raises the peaks to it. O(threads).
    std::array<LiveAmounts, kSizeClasses + 1> update();

    [[nodiscard]] LiveAmounts peaks(SizeClass which) const;
    /// Of live bytes, both classes together.
    [[nodiscard]] std::uint64_t peak_bytes() const;

  private:
    static constexpr int kBytesBits = 48; ///< the highest of them stays 0 but below zero
    static constexpr std::int64_t kOneBlock = std::int64_t{1} << kBytesBits;
    static constexpr std::int64_t kBelowZero =
        std::int64_t{1} << (kBytesBits - 1) | (std::int64_t{-1} << 63);
    static constexpr std::int64_t kMostBlocks = 1 << 13;
    static constexpr std::int64_t kFewestBlocks = -kOneBlock * (1 << 14); ///< they have 16 bits

    template <bool Shared>
    static bool take_headroom(ThreadCache& mine, const Amount& block) {
        mine.add<Shared>(block.which, Counter::allocations, 1);
        mine.add<Shared>(block.which, Counter::allocated_bytes, block.bytes);
        const std::int64_t word = -(kOneBlock + static_cast<std::int64_t>(block.bytes));
        const std::int64_t left = mine.add<Shared>(mine.of[block.which].headroom.live, word) |
                                  mine.add<Shared>(mine.both.live, word);
        if (block.waste != 0) {
            mine.add<Shared>(block.which, Counter::allocated_waste, block.waste);
            change_asked<Shared>(mine, block, 1);
        }
        return ((left | mine.overdrawn.load(std::memory_order_relaxed)) & kBelowZero) != 0;
    }
    template <bool Shared>
    void give_back(ThreadCache& mine, const Amount& block, bool settled) {
        mine.add<Shared>(block.which, Counter::frees, 1);
        mine.add<Shared>(block.which, Counter::freed_bytes, block.bytes);
        const std::int64_t word = kOneBlock + static_cast<std::int64_t>(block.bytes);
        mine.add<Shared>(mine.of[block.which].headroom.live, word);
        const std::int64_t both = mine.add<Shared>(mine.both.live, word);
        if (block.waste != 0) {
            mine.add<Shared>(block.which, Counter::freed_waste, block.waste);
            if (settled) change_asked<Shared>(mine, block, -1);
        }
        if ((both & mine.surplus.load(std::memory_order_relaxed)) != 0) [[unlikely]]
            limit(mine);
        if (!settled) change_pending<Shared>(mine, block, 1);
    }
    /// A block that is freed but not fit for reuse leaves room among the live ones, but not among
    /// the active ones.
    template <bool Shared>
    void change_pending(ThreadCache& mine, const Amount& block, std::int64_t sign) {
        const auto times = static_cast<std::uint64_t>(sign);
        mine.add<Shared>(block.which, Counter::pending, times);
        mine.add<Shared>(block.which, Counter::pending_bytes, times * block.bytes);
        if (block.waste != 0) {
            mine.add<Shared>(block.which, Counter::pending_waste, times * block.waste);
            if (sign < 0) change_asked<Shared>(mine, block, -1);
        }
        const std::int64_t word = -sign * (kOneBlock + static_cast<std::int64_t>(block.bytes));
        const std::int64_t one = mine.add<Shared>(mine.of[block.which].headroom.active, word);
        const std::int64_t both = mine.add<Shared>(mine.both.active, word);
        note_overdrawn(mine);
        const std::int64_t surplus = mine.surplus.load(std::memory_order_relaxed);
        if (both >= 0 && (both & surplus) != 0) [[unlikely]]
            limit(mine);
        if (std::min(one, both) < kFewestBlocks) [[unlikely]]
            renew(mine);
    }
    /// What was asked for rises less than the bytes where a block has waste, and falls less.
    template <bool Shared>
    static void change_asked(ThreadCache& mine, const Amount& block, std::int64_t sign) {
        const std::int64_t by = sign * static_cast<std::int64_t>(block.waste);
        mine.add<Shared>(mine.of[block.which].headroom.asked, by);
        mine.add<Shared>(mine.both.asked, by);
        note_overdrawn(mine);
    }
    static void note_overdrawn(ThreadCache& mine) {
        std::int64_t any = 0;
        for (const Headroom* one : {&mine.of[0].headroom, &mine.of[1].headroom, &mine.both}) {
            any |= one->active.load(std::memory_order_relaxed) |
                   one->asked.load(std::memory_order_relaxed);
        }
        mine.overdrawn.store(any, std::memory_order_relaxed);
    }

    [[nodiscard]] std::int64_t quantum() const;
    void renew(ThreadCache& mine);
    void limit(ThreadCache& mine);

    const ExactCache& cache_;
    using Peaks = std::array<std::atomic<std::int64_t>, 5>; ///< as LiveAmounts
    std::array<Peaks, kSizeClasses + 1> peaks_{};
};

} // namespace cachealloc
