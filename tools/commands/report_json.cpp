#include "tools/commands/report.h"

namespace cachealloc::tools {

namespace {

Json bytes_json(const DeviceBytes& bytes) {
    return {{"live", bytes.live},          {"live_pooled", bytes.pooled},
            {"handed_out", bytes.handed},  {"reserved", bytes.reserved},
            {"unfinished", bytes.pending}, {"host", bytes.host}};
}

Json moment_json(const Moment& moment, const Clock& clock) {
    return {{"bytes", moment.bytes},
            {"seconds", clock.since_start(moment.time) / 1e9},
            {"ticks", moment.time}};
}

Json fragmentation_json(const Fragmentation& is, const Clock& clock, StackNames& names) {
    Json pins = Json::array();
    for (const Pin& pin : is.pins) {
        Json one{{"segment_address", pin.segment.address},
                 {"segment_bytes", pin.segment.size},
                 {"free", pin.free},
                 {"blocks", pin.blocks},
                 {"block_address", pin.oldest.address},
                 {"block_bytes", pin.oldest.size}};
        if (pin.oldest.since != 0)
            one["block_since_seconds"] = clock.since_start(pin.oldest.since) / 1e9;
        one["frames"] = frames_json(pin.oldest.stack, names);
        pins.push_back(std::move(one));
    }
    return {{"reserved", is.reserved}, {"live", is.live},         {"rounding", is.rounding},
            {"hard", is.hard},         {"soft", is.soft},         {"stream", is.stream},
            {"outside", is.outside},   {"segments", is.segments}, {"largest_free", is.largest_free},
            {"pins", std::move(pins)}};
}

Json memory_stats_json(const std::optional<KnownMemoryStats>& known) {
    if (!known) return nullptr;
    Json values = Json::object();
    for_each_memory_stat(known->values,
                         [&values](const char* name, std::int64_t value) { values[name] = value; });
    return values;
}

Json device_json(const DeviceSummary& is, const Clock& clock, std::size_t top, StackNames& names) {
    return {{"ordinal", is.ordinal},
            {"name", is.name},
            {"total", is.total},
            {"peak_live", moment_json(is.peaks.live, clock)},
            {"peak_live_before_window", is.peaks.live_before_window},
            {"peak_reserved", moment_json(is.peaks.reserved, clock)},
            {"peak_reserved_before_window", is.peaks.reserved_before_window},
            {"peak_host", moment_json(is.peaks.host, clock)},
            {"at_peak_live", bytes_json(is.at_live_peak)},
            {"at_peak_reserved", bytes_json(is.at_reserved_peak)},
            {"at_end", bytes_json(is.at_end)},
            {"memory_stats", memory_stats_json(is.memory_stats)},
            {"memory_stats_from_events", is.memory_stats && is.memory_stats->from_events},
            {"fragmentation", fragmentation_json(is.fragmentation, clock, names)},
            {"holders_at_peak", holders_json(is.peak_holders, top, clock, names)},
            {"holders_at_end", holders_json(is.end_holders, top, clock, names)}};
}

Json churn_json(const Summary& summary, const Clock& clock) {
    Json classes = Json::array();
    for (std::size_t i = 0; i < summary.churn.size(); ++i) {
        const ChurnClass& one = summary.churn[i];
        if (one.allocations + one.frees == 0) continue;
        classes.push_back({{"from_bytes", std::uint64_t{1} << i},
                           {"allocations", one.allocations},
                           {"frees", one.frees},
                           {"bytes", one.bytes},
                           {"mean_lifetime_ns", one.mean_lifetime() * clock.tick_ns()}});
    }
    return classes;
}

} // namespace

Json report_json(const Recording& recording, const Summary& summary, StackNames& names,
                 std::size_t top) {
    const Trace& trace = recording.trace;
    Json settings = Json::object();
    for (const auto& [name, value] : trace.settings.all())
        settings[name] = value;
    Json statistics = Json::object();
    for (const auto& [name, value] : trace.statistics.all())
        statistics[name] = value;
    Json document{{"file", trace.file.path()},
                  {"pid", trace.header().pid},
                  {"start_epoch_ns", trace.header().start.realtime_ns},
                  {"seconds", summary.seconds},
                  {"end", run_end_name(summary.end)},
                  {"events", trace.events.counts().valid},
                  {"overwritten", trace.header().counters.overwritten},
                  {"whole", recording.history.whole()},
                  {"settings", std::move(settings)},
                  {"statistics", std::move(statistics)}};
    if (summary.out_of_memory) {
        const OutOfMemory& is = *summary.out_of_memory;
        document["out_of_memory"] = {
            {"count", is.count},
            {"seconds", trace.clock.since_start(is.event.time) / 1e9},
            {"device", is.event.device},
            {"bytes", is.event.size},
            {"device_free", is.event.stream},
            {"frames", frames_json(is.event.stack, names)},
            {"state", bytes_json(is.bytes)},
            {"fragmentation", fragmentation_json(is.fragmentation, trace.clock, names)},
            {"holders", holders_json(is.holders, top, trace.clock, names)}};
    }
    document["devices"] = Json::array();
    for (const DeviceSummary& device : summary.devices)
        document["devices"].push_back(device_json(device, trace.clock, top, names));
    document["churn"] = churn_json(summary, trace.clock);
    const Savings& saved = summary.savings;
    document["savings"] = {
        {"requests", saved.requests},           {"alloc_calls", saved.alloc_calls},
        {"free_calls", saved.free_calls},       {"waits", saved.waits},
        {"alloc_call_ns", saved.alloc_call_ns}, {"free_call_ns", saved.free_call_ns},
        {"waited_ns", saved.waited_ns},         {"saved_ns", saved.saved_ns}};
    document["advice"] = Json::array();
    for (const Advice& one : summary.advice)
        document["advice"].push_back({{"option", one.option}, {"reason", one.reason}});
    document["lacks"] = summary.lacks;
    document["symbol_notes"] = names.notes();
    return document;
}

} // namespace cachealloc::tools
