#include "tools/analysis/memory_stats.h"

#include <string>

namespace cachealloc::tools {

namespace {

constexpr std::uint8_t kStart = 0;
constexpr std::uint8_t kEnd = 1;

std::int64_t as_signed(std::uint64_t bytes) {
    return static_cast<std::int64_t>(bytes);
}

/// No rounding of sizes goes beyond the bound, so that the request tells the class.
SizeClass class_of(const Block& block) {
    return size_class(is_small(block.size));
}

} // namespace

void MemoryStatsCounter::on_event(const Event& event, const State& state, const Block* ended) {
    (void)state;
    using trace::EventKind;
    if (event.kind == EventKind::out_of_memory) ++of(event.device).num_ooms;
    if (event.memory != trace::MemoryType::pooled) return;
    switch (event.kind) {
    case EventKind::alloc: {
        const Block block = block_of(event);
        MemoryStats& stats = of(block.device);
        stats.allocation.change(class_of(block), 1);
        stats.allocated_bytes.change(class_of(block), as_signed(block.bytes()));
        change_active(block, 1);
        break;
    }
    case EventKind::free: {
        if (ended == nullptr) break;
        MemoryStats& stats = of(ended->device);
        stats.allocation.change(class_of(*ended), -1);
        stats.allocated_bytes.change(class_of(*ended), as_signed(-ended->bytes()));
        if (event.has(trace::kSettled)) change_active(*ended, -1);
        break;
    }
    case EventKind::free_completed:
        if (ended != nullptr) change_active(*ended, -1);
        break;
    case EventKind::segment_alloc:
    case EventKind::segment_free:
        change_segment(event, event.kind == EventKind::segment_alloc ? 1 : -1, true);
        break;
    case EventKind::segment_map:
    case EventKind::segment_unmap:
        change_segment(event, event.kind == EventKind::segment_map ? 1 : -1, false);
        break;
    default:
        break;
    }
}

void MemoryStatsCounter::change_active(const Block& block, std::int64_t sign) {
    MemoryStats& stats = of(block.device);
    const SizeClass which = class_of(block);
    const auto times = static_cast<std::uint64_t>(sign);
    stats.active.change(which, sign);
    stats.active_bytes.change(which, as_signed(times * block.bytes()));
    stats.requested_bytes.change(which, as_signed(times * block.size));
    change_pieces(block, sign > 0);
}

/// A block that becomes active parts the free memory around it, or takes a piece's end, or all of
/// it; one that ends joins it again. In a segment without an active block nothing counts.
void MemoryStatsCounter::change_pieces(const Block& block, bool active) {
    auto found = segments_.upper_bound(block.address);
    if (found == segments_.begin()) return;
    Segment& segment = (--found)->second;
    const std::uint64_t end = block.address + block.bytes();
    if (block.address - segment.base >= segment.size || end > segment.end()) return;
    const std::uint64_t pieces_before = segment.active != 0 ? segment.pieces : 0;
    const std::uint64_t bytes_before =
        segment.active != 0 ? segment.size - segment.active_bytes : 0;
    const bool before =
        block.address == segment.base || borders_.find({block.address, kEnd}) != nullptr;
    const bool behind = end == segment.end() || borders_.find({end, kStart}) != nullptr;
    const std::uint64_t neighbours = (before ? 1U : 0U) + (behind ? 1U : 0U);
    if (active) {
        if (segment.active == 0) segment.pieces = 1;
        segment.pieces += 1 - neighbours;
        ++segment.active;
        segment.active_bytes += block.bytes();
        borders_.insert({block.address, kStart}, 0);
        borders_.insert({end, kEnd}, 0);
    } else {
        segment.pieces += neighbours - 1;
        --segment.active;
        segment.active_bytes -= block.bytes();
        borders_.erase({block.address, kStart});
        borders_.erase({end, kEnd});
    }
    const std::uint64_t pieces = segment.active != 0 ? segment.pieces : 0;
    const std::uint64_t bytes = segment.active != 0 ? segment.size - segment.active_bytes : 0;
    MemoryStats& stats = of(segment.device);
    stats.inactive_split.change(segment.which, as_signed(pieces - pieces_before));
    stats.inactive_split_bytes.change(segment.which, as_signed(bytes - bytes_before));
}

void MemoryStatsCounter::change_segment(const Event& event, std::int64_t sign, bool classic) {
    if (event.has(trace::kSecond)) return; // its memory is counted where it was mapped first
    MemoryStats& stats = of(event.device);
    const SizeClass which = size_class(!event.has(trace::kLarge));
    stats.reserved_bytes.change(which, as_signed(static_cast<std::uint64_t>(sign) * event.size));
    ++(sign > 0 ? stats.num_device_alloc : stats.num_device_free);
    if (!classic) mapped_[event.device % trace::kDevices] = true;
    if (!classic) return;
    stats.segment.change(which, sign);
    if (sign > 0) {
        segments_.insert_or_assign(event.address,
                                   Segment{event.address, event.size, which, event.device});
    } else {
        segments_.erase(event.address);
    }
}

std::optional<KnownMemoryStats>
memory_stats_of(const History& history, const MemoryStatsCounter& counter, std::uint8_t device) {
    const Statistics& noted = history.trace().statistics;
    KnownMemoryStats known;
    bool any = false;
    for_each_memory_stat(
        known.values,
        [&](const char* name, std::int64_t& value) {
            any = any || noted.has(name);
            if (noted.has(name)) value = as_signed(noted[name]);
        },
        std::to_string(device).c_str());
    if (!history.whole()) return any ? std::optional(known) : std::nullopt;
    MemoryStats counted = counter.device(device);
    counted.oversize_allocations = known.values.oversize_allocations;
    counted.oversize_segments = known.values.oversize_segments;
    counted.num_alloc_retries = known.values.num_alloc_retries;
    counted.num_sync_all_streams = known.values.num_sync_all_streams;
    counted.num_oom_rejections = known.values.num_oom_rejections;
    counted.max_split_size = known.values.max_split_size;
    if (any && counter.mapped(device)) {
        counted.num_device_alloc = known.values.num_device_alloc;
        counted.num_device_free = known.values.num_device_free;
    }
    return KnownMemoryStats{counted, true};
}

} // namespace cachealloc::tools
