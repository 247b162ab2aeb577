#include "shim/statistics.h"

#include "shim/process.h"

#include <algorithm>

namespace cachealloc::shim {

Statistics collect_statistics(Process& process) {
    Statistics all;
    process.contexts.for_each_ever([&](ContextPool& context) {
        const PoolStatistics one = context.pool.statistics();
        for (const StatisticRow& row : kStatisticRows) {
            if (row.of_pools != nullptr) all.pools.*row.of_pools += one.*row.of_pools;
        }
        all.level = std::max(all.level, context.pool.fences().level());
        ++all.pool_count;
    });
    const DriverCalls& calls = process.calls;
    all.driver_alloc_calls = calls.alloc.load(std::memory_order_relaxed);
    all.driver_free_calls = calls.free.load(std::memory_order_relaxed);
    all.driver_alloc_ns = calls.alloc_ns.load(std::memory_order_relaxed);
    all.driver_free_ns = calls.free_ns.load(std::memory_order_relaxed);
    all.map_calls = calls.mapping.map.load(std::memory_order_relaxed);
    all.unmap_calls = calls.mapping.unmap.load(std::memory_order_relaxed);
    all.map_ns = calls.mapping.map_ns.load(std::memory_order_relaxed);
    all.unmap_ns = calls.mapping.unmap_ns.load(std::memory_order_relaxed);
    all.passed_calls = calls.passed.load(std::memory_order_relaxed);
    all.ipc_exports = calls.ipc_exports.load(std::memory_order_relaxed);
    all.query_waits = process.host_watch.query_waits();
    all.mapped_pinned = process.host_watch.reachable.mapped_asked();
    all.mapped_pinned_largest = process.host_watch.reachable.mapped_largest();
    return all;
}

bool collect_memory_stats(Process& process, int device, bool pieces, MemoryStats& stats) {
    bool any = false;
    process.contexts.for_each_ever([&](ContextPool& context) {
        if (context.device != device) return;
        add(stats, context.pool.memory_stats(pieces));
        any = true;
    });
    return any;
}

} // namespace cachealloc::shim
