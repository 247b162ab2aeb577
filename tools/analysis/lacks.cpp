#include "tools/analysis/summary.h"

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

/// A line for each count that is not 0.
struct CountLine {
    std::uint64_t count;
    const char* line; ///< {} stands for the count
};

void add_counts(std::vector<std::string>& lines, std::initializer_list<CountLine> counts) {
    for (const CountLine& one : counts) {
        if (one.count != 0) lines.push_back(fmt::format(fmt::runtime(one.line), one.count));
    }
}

} // namespace

std::vector<std::string> lacks_of(const History& history) {
    const Trace& trace = history.trace();
    std::vector<std::string> lines = trace.file.notes();
    const TraceCounters& counters = trace.header().counters;
    const EventCounts& ring = trace.events.counts();
    if (!history.whole()) {
        lines.push_back(fmt::format("the ring came round: {} older events are gone, all are there "
                                    "from {:.3f} s on (what was "
                                    "live then is known all the same)",
                                    counters.overwritten,
                                    trace.clock.since_start(history.complete_since()) / 1e9));
    }
    add_counts(
        lines,
        {
            {ring.torn, "{} events were never finished, or are damaged"},
            {ring.unknown, "{} events are of a kind that this version of the tool does not know"},
            {ring.foreign, "{} events lie in copies of other chunks"},
            {counters.lost, "{} events found no room in the ring"},
            {counters.nested, "{} calls out of signal handlers were not recorded"},
            {counters.stacks_dropped, "{} events have no stack, since the stack table was full"},
            {counters.stacks_failed, "{} stacks could not be captured"},
            {counters.stacks_differed, "{} stacks differ between the walker and the full unwinder"},
            {counters.live_dropped, "{} allocations found no room in the table of live memory"},
            {trace.live.torn(), "{} entries of the table of live memory are damaged"},
            {trace.live.unknown(), "{} entries of the table of live memory are of a type that this "
                                   "version of the tool does not know"},
            {trace.stacks.damaged(), "{} stacks cannot be read"},
            {trace.modules.damaged(), "{} entries of the module log cannot be read"},
            {history.counts().inserted_allocs,
             "{} allocations are known from the table of live memory alone"},
            {history.counts().implied_frees,
             "the frees of {} blocks were lost; their addresses were handed out again"},
            {history.counts().vanished, "{} events were overwritten while this was read"},
        });
    if (history.counts().lost_frees != 0)
        lines.push_back(
            fmt::format("the frees of {} blocks were lost: what is shown as live before "
                        "the end is up to {} bytes too much",
                        history.counts().lost_frees, history.counts().lost_bytes));
    if ((trace.header().seen & trace::kUnwinderReplaced) != 0)
        lines.emplace_back("code was loaded where other code had been: libgcc unwound since then");
    if ((trace.header().seen & trace::kRingCapped) != 0)
        lines.emplace_back("the disk had no room for the ring to grow as far as ring_mb asked");
    if ((trace.header().seen & trace::kModulesFull) != 0)
        lines.emplace_back("later modules are not in the log: their frames have no names");
    if (!trace.clock.certain())
        lines.emplace_back("the length of a clock tick is a guess: all times are rough");
    return lines;
}

} // namespace cachealloc::tools
