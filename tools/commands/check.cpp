#include "tools/commands/check.h"

#include "tools/analysis/summary.h"
#include "tools/commands/exit_codes.h"
#include "tools/commands/tables.h"
#include "tools/commands/text.h"

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

struct Number {
    const char* name;
    std::uint64_t value;
};

std::vector<Number> numbers_of(const Recording& recording) {
    const EventCounts& ring = recording.trace.events.counts();
    const TraceCounters& counters = recording.trace.header().counters;
    const HistoryCounts& history = recording.history.counts();
    return {{"records_valid", ring.valid},
            {"records_torn", ring.torn},
            {"records_unknown", ring.unknown},
            {"records_foreign", ring.foreign},
            {"records_of_older_laps", ring.older},
            {"chunks", ring.chunks},
            {"chunks_unused", ring.unused_chunks},
            {"events_overwritten", counters.overwritten},
            {"events_lost", counters.lost},
            {"events_nested", counters.nested},
            {"live_memory", recording.trace.live.memory().size()},
            {"live_segments", recording.trace.live.segments().size()},
            {"live_torn", recording.trace.live.torn()},
            {"live_unknown", recording.trace.live.unknown()},
            {"live_dropped", counters.live_dropped},
            {"live_before_window", history.start_blocks},
            {"unknown_frees", counters.unknown_frees},
            {"allocs_from_live_table", history.inserted_allocs},
            {"frees_implied", history.implied_frees},
            {"frees_lost", history.lost_frees},
            {"stacks", recording.trace.stacks.used()},
            {"stacks_damaged", recording.trace.stacks.damaged()},
            {"stacks_dropped", counters.stacks_dropped},
            {"stacks_walked", counters.stacks_walked},
            {"stacks_unwound", counters.stacks_unwound},
            {"stacks_failed", counters.stacks_failed},
            {"stacks_differed", counters.stacks_differed},
            {"modules", recording.trace.modules.all().size()},
            {"modules_damaged", recording.trace.modules.damaged()},
            {"threads", recording.trace.threads.all().size()}};
}

} // namespace

int check_main(const ReadOptions& options) {
    Recording recording(options);
    const TraceHeader& header = recording.trace.header();
    const std::vector<std::string> lacks = lacks_of(recording.history);
    const std::vector<Number> numbers = numbers_of(recording);
    if (options.json) {
        Json document{{"file", recording.trace.file.path()},
                      {"version", fmt::format("{}.{}", header.major, header.minor)},
                      {"bytes", recording.trace.file.size()},
                      {"pid", header.pid},
                      {"running", recording.trace.running()},
                      {"whole", recording.history.whole()}};
        for (const Number& number : numbers)
            document[number.name] = number.value;
        document["sections"] = Json::array();
        for (const TraceSection& section : recording.trace.file.sections())
            document["sections"].push_back({{"name", section_name(section.type)},
                                            {"offset", section.offset},
                                            {"bytes", section.bytes},
                                            {"missing", section.missing}});
        document["lacks"] = lacks;
        print_json(document);
        return kFine;
    }
    fmt::print("{}: a recording of format {}.{}, {}, {}\n", recording.trace.file.path(),
               header.major, header.minor, bytes_text(recording.trace.file.size()),
               lacks.empty() ? "whole" : "readable, with these gaps:");
    for (const std::string& line : lacks)
        fmt::print("  {}\n", line);
    fmt::print("\n");
    for (const TraceSection& section : recording.trace.file.sections())
        fmt::print("  section {:<12} {:>12} at {:#x}{}\n", section_name(section.type),
                   bytes_text(section.bytes), section.offset,
                   section.missing == 0
                       ? ""
                       : fmt::format(", {} are missing", bytes_text(section.missing)));
    for (const Number& number : numbers)
        fmt::print("  {:<24} {:>14}\n", number.name, count_text(number.value));
    return kFine;
}

} // namespace cachealloc::tools
