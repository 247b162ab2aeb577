#include "tools/commands/leaks.h"

#include "tools/analysis/holders.h"
#include "tools/commands/exit_codes.h"
#include "tools/commands/tables.h"
#include "tools/commands/text.h"

#include <algorithm>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

constexpr std::size_t kStacks = 20;
constexpr std::size_t kFrames = 12;

struct Sum {
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
};

void print_text(const Recording& recording, const std::vector<Holder>& holders, const Sum& sum,
                std::size_t top, StackNames& names) {
    const Clock& clock = recording.trace.clock;
    if (holders.empty()) {
        fmt::print("Nothing is left over: every allocation was freed.\n");
        return;
    }
    fmt::print("{} in {} allocations of {} stacks {}\n", bytes_text(sum.bytes),
               count_text(sum.blocks), count_text(holders.size()),
               recording.trace.running() ? "are live now" : "were never freed");
    for (std::size_t i = 0; i < std::min(top, holders.size()); ++i) {
        const Holder& holder = holders[i];
        fmt::print("\n  {} in {} {} ({}), the oldest {}\n", bytes_text(holder.bytes),
                   count_text(holder.blocks), holder.blocks == 1 ? "allocation" : "allocations",
                   types_text(holder.types),
                   holder.oldest == 0
                       ? "before the oldest event"
                       : "after " + duration_text(std::max(clock.since_start(holder.oldest), 0.0)));
        fmt::print("{}", frames_text(holder.stack, kFrames, names));
    }
    if (holders.size() > top) fmt::print("\n  {} stacks more: --top\n", holders.size() - top);
}

} // namespace

int leaks_main(const LeakOptions& options) {
    Recording recording(options.read);
    std::vector<Holder> holders = holders_of(
        recording.history.end(), {.device = options.read.device, .host_memory = options.host});
    std::erase_if(holders, [&](const Holder& one) { return one.bytes < options.least_bytes; });
    Sum sum;
    for (const Holder& holder : holders) {
        sum.bytes += holder.bytes;
        sum.blocks += holder.blocks;
    }
    const std::size_t top = options.read.top == 0 ? kStacks : options.read.top;
    if (options.read.json) {
        print_json({{"file", recording.trace.file.path()},
                    {"bytes", sum.bytes},
                    {"allocations", sum.blocks},
                    {"stacks", holders.size()},
                    {"running", recording.trace.running()},
                    {"complete", recording.trace.live.complete()},
                    {"leaks", holders_json(holders, options.read.top, recording.trace.clock,
                                           recording.names)}});
    } else {
        print_text(recording, holders, sum, top, recording.names);
        if (!recording.trace.live.complete())
            fmt::print("\nThe table of live memory is not complete: there may be more.\n");
        print_symbol_notes(recording.names);
    }
    return options.fail_from && sum.blocks >= *options.fail_from ? kFindings : kFine;
}

} // namespace cachealloc::tools
