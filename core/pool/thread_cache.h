#pragma once

#include "core/pool/block.h"
#include "core/pool/size_rules.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace cachealloc {

/// What each thread counts for itself, by class of the request; the sums over all threads are exact
/// when no call is running. A thread's own part of what comes and goes may be below zero.
enum class Counter : std::uint32_t {
    allocations,
    frees,
    allocated_bytes, ///< block sizes handed out
    freed_bytes,
    allocated_waste, ///< of these bytes, those that were not asked for
    freed_waste,
    pending, ///< freed, but not fit for reuse yet
    pending_bytes,
    pending_waste,
    shared_hits, ///< served from a shared stack or another thread's slot
    kCount,
};
using Counters = std::array<std::uint64_t, static_cast<std::size_t>(Counter::kCount)>;

/// How much a thread may still hand out without a look at the pool's peaks (LivePeaks). Blocks are
/// above, bytes in the low 48 bits.
struct Headroom {
    std::atomic<std::int64_t> live{0};   ///< by the peaks of live blocks
    std::atomic<std::int64_t> active{0}; ///< so much more by those of active ones
    std::atomic<std::int64_t> asked{0};  ///< and so many bytes more by those of bytes asked for
};

/// One thread's part of a pool: a slot per exact size and its own counters.
///
/// Invariant: only the thread that holds the index writes the counters (so plain loads and stores
/// do), except in the cache of kSharedThread, which uses atomic additions. Slots may be emptied by
/// anybody, by atomic exchange.
struct alignas(64) ThreadCache {
    struct alignas(64) OfClass {
        Headroom headroom;
        std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Counter::kCount)>
            counters{};
    };
    std::array<OfClass, kSizeClasses> of{}; ///< by SizeClass
    Headroom both;                          ///< of both classes together
    std::atomic<std::int64_t> overdrawn{0}; ///< below zero where some `active` or `asked` is
    std::atomic<std::int64_t> surplus{-1};  ///< bits that say that it has more headroom than it may
    bool shared = false;
    std::array<std::atomic<Block*>, BinIndex::kBins> slots{};

    /// Returns the new value. `Shared` as `shared` is: callers with several to add ask once.
    template <bool Shared, class Value>
    static Value add(std::atomic<Value>& value, Value amount) {
        if constexpr (Shared) return value.fetch_add(amount, std::memory_order_relaxed) + amount;
        const Value sum = value.load(std::memory_order_relaxed) + amount;
        value.store(sum, std::memory_order_relaxed);
        return sum;
    }
    template <bool Shared>
    void add(SizeClass which, Counter counter, std::uint64_t amount) {
        add<Shared>(of[which].counters[static_cast<std::size_t>(counter)], amount);
    }
    void add(SizeClass which, Counter counter, std::uint64_t amount) {
        shared ? add<true>(which, counter, amount) : add<false>(which, counter, amount);
    }
    std::uint64_t get(SizeClass which, Counter counter) const {
        return of[which].counters[static_cast<std::size_t>(counter)].load(
            std::memory_order_relaxed);
    }
};

} // namespace cachealloc
