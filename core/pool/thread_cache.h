#pragma once

#include "core/pool/block.h"
#include "core/pool/size_rules.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace cachealloc {

/// What each thread counts for itself on the hot path; their sums are exact when no call is
/// running.
enum class Counter : std::uint32_t {
    allocations,
    frees,
    allocated_bytes, ///< block sizes handed out
    freed_bytes,
    allocated_requested, ///< bytes asked for
    freed_requested,
    shared_hits, ///< served from a shared stack or another thread's slot
    kCount,
};

/// One thread's part of a pool: a slot per exact size and its own counters.
///
/// Invariant: only the thread that holds the index writes the counters (so plain loads and stores
/// do), except in the cache of kSharedThread, which uses atomic additions. Slots may be emptied by
/// anybody, by atomic exchange.
struct alignas(64) ThreadCache {
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Counter::kCount)> counters{};
    bool shared = false;
    std::int64_t live_delta = 0; ///< part of the pool's live bytes not yet reported (LiveBytes)
    std::array<std::atomic<Block*>, BinIndex::kBins> slots{};

    void add(Counter counter, std::uint64_t amount) {
        std::atomic<std::uint64_t>& value = counters[static_cast<std::size_t>(counter)];
        if (shared) {
            value.fetch_add(amount, std::memory_order_relaxed);
        } else {
            value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
        }
    }
    std::uint64_t get(Counter counter) const {
        return counters[static_cast<std::size_t>(counter)].load(std::memory_order_relaxed);
    }
};

} // namespace cachealloc
