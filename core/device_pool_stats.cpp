// What a pool has done, in numbers.
#include "core/device_pool.h"

#include <algorithm>

namespace cachealloc {

PoolStatistics DevicePool::statistics() const {
    const auto relaxed = [](const std::atomic<std::uint64_t>& value) {
        return value.load(std::memory_order_relaxed);
    };
    const Heap::Totals heap = heap_.totals();
    const Heap::Totals range = range_.totals();
    PoolStatistics all;
    all.frees = cache_.total(Counter::frees);
    all.allocations = cache_.total(Counter::allocations);
    const std::uint64_t freed = cache_.total(Counter::freed_bytes);
    all.allocated_bytes = cache_.total(Counter::allocated_bytes) - freed;
    const std::uint64_t freed_waste = cache_.total(Counter::freed_waste);
    all.requested_bytes =
        all.allocated_bytes - (cache_.total(Counter::allocated_waste) - freed_waste);
    all.allocated_bytes_peak = live_.peak_bytes();
    all.reserved_bytes = heap.reserved + range.reserved;
    // Exact as long as one of the two serves everything.
    all.reserved_bytes_peak = heap.reserved_peak + range.reserved_peak;
    all.cached_bytes =
        all.reserved_bytes > all.allocated_bytes ? all.reserved_bytes - all.allocated_bytes : 0;
    all.largest_free_bytes = std::max(heap.largest_free, range.largest_free);
    all.segments = heap.segments + range.segments;
    all.splits = heap.splits + range.splits;
    all.growths = relaxed(slow_.growths);
    all.pieces_mapped = relaxed(slow_.pieces_mapped);
    all.unmapped_bytes = relaxed(slow_.unmapped_bytes);
    all.stitches_made = relaxed(slow_.stitches_made);
    all.stitches_used = range_.stitches_used();
    all.stitches_ended = relaxed(slow_.stitches_ended);
    all.remaps = relaxed(slow_.remaps);
    all.fragmentation_misses = relaxed(slow_.fragmentation_misses);
    all.affinity_hits = range_.affinity_hits();
    all.shared_hits = cache_.total(Counter::shared_hits);
    all.limbo_hits = relaxed(slow_.limbo_hits);
    all.tree_hits = relaxed(slow_.tree_hits);
    all.segment_allocs = relaxed(slow_.segment_allocs);
    all.segment_frees = relaxed(slow_.segment_frees);
    all.async_allocations = relaxed(slow_.async_allocations);
    all.async_frees = relaxed(slow_.async_frees);
    all.stream_hits = relaxed(slow_.stream_hits);
    all.stream_waits = relaxed(slow_.stream_waits);
    all.thread_hits = all.allocations - all.shared_hits - all.limbo_hits - all.tree_hits -
                      all.segment_allocs - all.stream_hits - all.growths - all.stitches_made;
    all.fences = relaxed(slow_.fences);
    all.barriers = relaxed(slow_.barriers);
    all.host_waits = relaxed(slow_.host_waits);
    all.host_wait_ns = relaxed(slow_.host_wait_ns);
    all.native_waits = relaxed(slow_.native_waits);
    all.native_wait_ns = relaxed(slow_.native_wait_ns);
    all.set_aside = relaxed(slow_.set_aside);
    all.out_of_memory = relaxed(slow_.oom);
    return all;
}

namespace {

/// A gauge of what came and went by counters of its own.
Gauge gauge(std::int64_t current, std::int64_t peak, std::uint64_t allocated) {
    Gauge is;
    is.current = current;
    is.peak = peak;
    is.allocated = static_cast<std::int64_t>(allocated);
    is.freed = is.allocated - current;
    return is;
}

} // namespace

void DevicePool::Oversize::took() {
    const std::int64_t ever = allocated.fetch_add(1, std::memory_order_relaxed) + 1;
    const std::int64_t now = ever - freed.load(std::memory_order_relaxed);
    std::int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < now && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
}

MemoryStats DevicePool::memory_stats(bool pieces) {
    MemoryStats all;
    const auto now = live_.update();
    std::array<Counters, kSizeClasses + 1> came{};
    const auto totals = cache_.totals();
    for (std::size_t i = 0; i < came[0].size(); ++i) {
        came[kSmallClass][i] = totals[kSmallClass][i];
        came[kLargeClass][i] = totals[kLargeClass][i];
        came[kBothClasses][i] = totals[kSmallClass][i] + totals[kLargeClass][i];
    }
    for (const SizeClass which : {kSmallClass, kLargeClass, kBothClasses}) {
        const LiveAmounts& is = now[which];
        const LiveAmounts peak = live_.peaks(which);
        const auto ever = [&came, which](Counter counter) {
            return came[which][static_cast<std::size_t>(counter)];
        };
        const std::uint64_t blocks = ever(Counter::allocations);
        const std::uint64_t bytes = ever(Counter::allocated_bytes);
        all.allocation[which] = gauge(is.blocks, peak.blocks, blocks);
        all.allocated_bytes[which] = gauge(is.bytes, peak.bytes, bytes);
        all.active[which] = gauge(is.active, peak.active, blocks);
        all.active_bytes[which] = gauge(is.active_bytes, peak.active_bytes, bytes);
        all.requested_bytes[which] =
            gauge(is.requested, peak.requested, bytes - ever(Counter::allocated_waste));
    }
    const Heap::Statistics heap = heap_.statistics(pieces);
    all.segment = heap.segments;
    all.reserved_bytes = heap.reserved;
    const Gauge mapped = range_.mapped_bytes();
    all.reserved_bytes[kLargeClass] += mapped;
    all.reserved_bytes[kBothClasses] += mapped;
    all.inactive_split = heap.inactive_split;
    all.inactive_split_bytes = heap.inactive_split_bytes;
    all.oversize_segments = heap.oversize_segments;
    const std::int64_t oversize = oversize_.allocated.load(std::memory_order_relaxed);
    const std::int64_t oversize_freed = oversize_.freed.load(std::memory_order_relaxed);
    all.oversize_allocations =
        gauge(oversize - oversize_freed, oversize_.peak.load(std::memory_order_relaxed),
              static_cast<std::uint64_t>(oversize));
    const auto number = [](const std::atomic<std::uint64_t>& value) {
        return static_cast<std::int64_t>(value.load(std::memory_order_relaxed));
    };
    all.num_alloc_retries = number(slow_.alloc_retries);
    all.num_ooms = number(slow_.oom);
    all.num_sync_all_streams = number(slow_.sync_all);
    all.num_device_alloc = number(slow_.segment_allocs) + number(slow_.maps);
    all.num_device_free = number(slow_.segment_frees) + number(slow_.unmaps);
    all.num_oom_rejections = number(slow_.oom_rejections);
    if (max_split_ != Options::kUnlimited)
        all.max_split_size = static_cast<std::int64_t>(max_split_);
    return all;
}

} // namespace cachealloc
