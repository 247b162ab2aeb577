// The figures of the whole process, by name: what is printed at exit and what a recording shows.
#pragma once

#include "core/device_pool.h"

#include <cstdint>

namespace cachealloc::shim {

struct Process;

// Over all pools that ever were, and what the process itself counts.
struct Statistics {
    PoolStatistics pools;
    OrderLevel level = OrderLevel::ordered; // the most careful one
    std::uint64_t pool_count = 0;
    std::uint64_t driver_alloc_calls = 0; // cuMemAlloc, for segments and passed on
    std::uint64_t driver_free_calls = 0;
    std::uint64_t driver_alloc_ns = 0; // spent in them
    std::uint64_t driver_free_ns = 0;
    std::uint64_t map_calls = 0; // pieces mapped into growable memory, or mapped again
    std::uint64_t unmap_calls = 0;
    std::uint64_t map_ns = 0; // spent in them
    std::uint64_t unmap_ns = 0;
    std::uint64_t passed_calls = 0; // of both: those that the pool did not take on
    std::uint64_t ipc_exports = 0;  // handles for other processes that the program asked for
    std::uint64_t query_waits = 0;
    std::uint64_t mapped_pinned = 0;
    std::uint64_t mapped_pinned_largest = 0;
};

// Calls no CUDA function. Takes locks of the contexts and pools.
Statistics collect_statistics(Process& process);

// What torch.cuda.memory_stats() would tell of a device: the sum over its pools that ever were.
// `pieces` as DevicePool::memory_stats(). False if it never had one. Takes locks as above.
bool collect_memory_stats(Process& process, int device, bool pieces, MemoryStats& stats);

// One table: every figure and the name it goes by.
struct StatisticRow {
    const char* name;
    std::uint64_t Statistics::*of_process; // one of the two is null
    std::uint64_t PoolStatistics::*of_pools;
};
inline constexpr StatisticRow kStatisticRows[] = {
    {"pools", &Statistics::pool_count, nullptr},
    {"driver_alloc_calls", &Statistics::driver_alloc_calls, nullptr},
    {"driver_free_calls", &Statistics::driver_free_calls, nullptr},
    {"driver_alloc_ns", &Statistics::driver_alloc_ns, nullptr},
    {"driver_free_ns", &Statistics::driver_free_ns, nullptr},
    {"map_calls", &Statistics::map_calls, nullptr},
    {"unmap_calls", &Statistics::unmap_calls, nullptr},
    {"map_ns", &Statistics::map_ns, nullptr},
    {"unmap_ns", &Statistics::unmap_ns, nullptr},
    {"passed_calls", &Statistics::passed_calls, nullptr},
    {"ipc_exports", &Statistics::ipc_exports, nullptr},
    {"query_waits", &Statistics::query_waits, nullptr},
    {"mapped_pinned", &Statistics::mapped_pinned, nullptr},
    {"mapped_pinned_largest", &Statistics::mapped_pinned_largest, nullptr},
    {"allocations", nullptr, &PoolStatistics::allocations},
    {"frees", nullptr, &PoolStatistics::frees},
    {"allocated_bytes", nullptr, &PoolStatistics::allocated_bytes},
    {"allocated_bytes_peak", nullptr, &PoolStatistics::allocated_bytes_peak},
    {"requested_bytes", nullptr, &PoolStatistics::requested_bytes},
    {"reserved_bytes", nullptr, &PoolStatistics::reserved_bytes},
    {"reserved_bytes_peak", nullptr, &PoolStatistics::reserved_bytes_peak},
    {"segments", nullptr, &PoolStatistics::segments},
    {"thread_hits", nullptr, &PoolStatistics::thread_hits},
    {"shared_hits", nullptr, &PoolStatistics::shared_hits},
    {"limbo_hits", nullptr, &PoolStatistics::limbo_hits},
    {"tree_hits", nullptr, &PoolStatistics::tree_hits},
    {"segment_allocs", nullptr, &PoolStatistics::segment_allocs},
    {"segment_frees", nullptr, &PoolStatistics::segment_frees},
    {"splits", nullptr, &PoolStatistics::splits},
    {"fences", nullptr, &PoolStatistics::fences},
    {"barriers", nullptr, &PoolStatistics::barriers},
    {"host_waits", nullptr, &PoolStatistics::host_waits},
    {"host_wait_ns", nullptr, &PoolStatistics::host_wait_ns},
    {"native_waits", nullptr, &PoolStatistics::native_waits},
    {"native_wait_ns", nullptr, &PoolStatistics::native_wait_ns},
    {"set_aside", nullptr, &PoolStatistics::set_aside},
    {"async_allocations", nullptr, &PoolStatistics::async_allocations},
    {"async_frees", nullptr, &PoolStatistics::async_frees},
    {"stream_hits", nullptr, &PoolStatistics::stream_hits},
    {"stream_waits", nullptr, &PoolStatistics::stream_waits},
    {"out_of_memory", nullptr, &PoolStatistics::out_of_memory},
    {"growths", nullptr, &PoolStatistics::growths},
    {"pieces_mapped", nullptr, &PoolStatistics::pieces_mapped},
    {"unmapped_bytes", nullptr, &PoolStatistics::unmapped_bytes},
    {"stitches_made", nullptr, &PoolStatistics::stitches_made},
    {"stitches_used", nullptr, &PoolStatistics::stitches_used},
    {"stitches_ended", nullptr, &PoolStatistics::stitches_ended},
    {"remaps", nullptr, &PoolStatistics::remaps},
    {"fragmentation_misses", nullptr, &PoolStatistics::fragmentation_misses},
    {"affinity_hits", nullptr, &PoolStatistics::affinity_hits},
};

inline std::uint64_t value_of(const StatisticRow& row, const Statistics& statistics) {
    return row.of_process != nullptr ? statistics.*row.of_process : statistics.pools.*row.of_pools;
}

} // namespace cachealloc::shim
