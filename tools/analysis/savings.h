#pragma once

#include "tools/trace/tables.h"

#include <cstdint>

namespace cachealloc::tools {

/// What the pool spared the program, from the statistics of its run.
struct Savings {
    std::uint64_t requests = 0; ///< allocations asked of the pool
    std::uint64_t frees = 0;
    std::uint64_t alloc_calls = 0; ///< calls of cuMemAlloc that were not made
    std::uint64_t free_calls = 0;  ///< calls of cuMemFree that were not made
    std::uint64_t waits = 0;       ///< frees that natively would have waited and did not
    double alloc_call_ns = 0;      ///< what a real call took in this run, on average; 0: unknown
    double free_call_ns = 0;
    double waited_ns = 0; ///< by the pool where native calls would not have
    /// What the calls that were not made would have cost, less `waited_ns`; never
    /// negative. 0 where no real call was measured.
    double saved_ns = 0;
};

[[nodiscard]] Savings savings_of(const Statistics& statistics);

} // namespace cachealloc::tools
