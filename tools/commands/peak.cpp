#include "tools/commands/peak.h"

#include "tools/analysis/summary.h"
#include "tools/commands/exit_codes.h"
#include "tools/commands/report.h"
#include "tools/commands/tables.h"
#include "tools/commands/text.h"

#include <algorithm>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

constexpr std::size_t kStacks = 10;
constexpr std::size_t kFrames = 12;

void print_device(const Recording& recording, const DeviceSummary& device, std::size_t top,
                  StackNames& names) {
    const Clock& clock = recording.trace.clock;
    fmt::print("Device {}{}{}: most was live after {}: {} in {} stacks; reserved then {}\n",
               device.ordinal, device.name.empty() ? "" : ", ", device.name,
               duration_text(std::max(clock.since_start(device.peaks.live.time), 0.0)),
               bytes_text(device.peaks.live.bytes), count_text(device.peak_holders.size()),
               bytes_text(device.at_live_peak.reserved));
    if (device.peaks.live_before_window)
        fmt::print("  the true peak came before the oldest event that the ring kept: "
                   "set ring_mb to record more\n");
    for (std::size_t i = 0; i < std::min(top, device.peak_holders.size()); ++i) {
        const Holder& holder = device.peak_holders[i];
        fmt::print("\n  {} ({}) in {} {} ({}), the largest {}\n", bytes_text(holder.bytes),
                   share_text(holder.bytes, device.peaks.live.bytes), count_text(holder.blocks),
                   holder.blocks == 1 ? "allocation" : "allocations", types_text(holder.types),
                   bytes_text(holder.largest));
        fmt::print("{}", frames_text(holder.stack, kFrames, names));
    }
    if (device.peak_holders.size() > top)
        fmt::print("\n  {} stacks more: --top\n", device.peak_holders.size() - top);
}

} // namespace

int peak_main(const ReadOptions& options) {
    Recording recording(options);
    const Summary summary = summarize(recording.history, options.device);
    const std::size_t top = options.top == 0 ? kStacks : options.top;
    if (options.json) {
        const Json whole = report_json(recording, summary, recording.names, options.top);
        print_json({{"file", whole["file"]}, {"devices", whole["devices"]}});
        return kFine;
    }
    if (summary.devices.empty()) fmt::print("No memory was allocated.\n");
    for (const DeviceSummary& device : summary.devices)
        print_device(recording, device, top, recording.names);
    print_symbol_notes(recording.names);
    return kFine;
}

} // namespace cachealloc::tools
