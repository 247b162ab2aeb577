#include "tools/commands/memory_table.h"

#include "tools/commands/text.h"

#include <algorithm>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

struct Line {
    const char* title;
    GaugeSet MemoryStats::*set; ///< one of the two is null
    Gauge MemoryStats::*gauge;
    bool bytes;
};
constexpr Line kLines[] = {
    {"Allocated memory", &MemoryStats::allocated_bytes, nullptr, true},
    {"Active memory", &MemoryStats::active_bytes, nullptr, true},
    {"Requested memory", &MemoryStats::requested_bytes, nullptr, true},
    {"Reserved memory", &MemoryStats::reserved_bytes, nullptr, true},
    {"Non-releasable memory", &MemoryStats::inactive_split_bytes, nullptr, true},
    {"Allocations", &MemoryStats::allocation, nullptr, false},
    {"Active allocations", &MemoryStats::active, nullptr, false},
    {"Segments", &MemoryStats::segment, nullptr, false},
    {"Non-releasable blocks", &MemoryStats::inactive_split, nullptr, false},
    {"Oversize allocations", nullptr, &MemoryStats::oversize_allocations, false},
    {"Oversize segments", nullptr, &MemoryStats::oversize_segments, false},
};

std::string line(const std::string& title, const Gauge& gauge, bool bytes) {
    const auto text = [bytes](std::int64_t value) {
        const auto amount = static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0));
        return bytes ? bytes_text(amount) : count_text(amount);
    };
    return fmt::format("  {:<24}{:>14}{:>14}{:>16}{:>16}\n", title, text(gauge.current),
                       text(gauge.peak), text(gauge.allocated), text(gauge.freed));
}

} // namespace

std::string memory_table(const KnownMemoryStats& stats, bool by_class) {
    const MemoryStats& is = stats.values;
    std::string text = fmt::format("  {:<24}{:>14}{:>14}{:>16}{:>16}\n", "The allocator", "now",
                                   "peak", "total in", "total out");
    for (const Line& row : kLines) {
        if (row.set == nullptr) {
            const Gauge& gauge = is.*row.gauge;
            if (by_class || gauge.allocated != 0) text += line(row.title, gauge, row.bytes);
            continue;
        }
        const GaugeSet& set = is.*row.set;
        text += line(row.title, set[kBothClasses], row.bytes);
        if (!by_class) continue;
        text += line("  from large pool", set[kLargeClass], row.bytes);
        text += line("  from small pool", set[kSmallClass], row.bytes);
    }
    if (by_class) {
        text += fmt::format(
            "  driver calls: {} for memory, {} to give it back; out of memory {}, retries {}, "
            "refusals {}, waits for all {}\n",
            count_text(static_cast<std::uint64_t>(is.num_device_alloc)),
            count_text(static_cast<std::uint64_t>(is.num_device_free)), is.num_ooms,
            is.num_alloc_retries, is.num_oom_rejections, is.num_sync_all_streams);
        text += stats.from_events ? "  by the events of the whole run\n"
                                  : "  as the process last noted them\n";
    }
    return text;
}

} // namespace cachealloc::tools
