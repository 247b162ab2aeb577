#include "tools/exports/memory_viz_settings.h"

#include "core/options.h"

#include <string>

namespace cachealloc::tools {

void write_allocator_settings(PickleWriter& pickle, const Trace& trace, const History& history) {
    ParseReport report;
    const Options options = parse_options(trace.settings["options"], report);
    pickle.open_dict();
    pickle.key("PYTORCH_CUDA_ALLOC_CONF");
    pickle.text(trace.settings["conf"]);
    pickle.key("max_split_size");
    if (options.max_split_size_mb == Options::kUnlimited) {
        pickle.negative_one();
    } else {
        pickle.integer(options.max_split_bytes());
    }
    pickle.key("garbage_collection_threshold");
    pickle.real(0);
    pickle.key("expandable_segments");
    pickle.boolean(false);
    pickle.key("roundup_power2_divisions");
    pickle.open_dict();
    for (std::size_t interval = 0; interval < options.roundup_power2_divisions.size(); ++interval) {
        pickle.key(std::to_string(std::uint64_t{1} << interval));
        pickle.integer(options.roundup_power2_divisions[interval]);
    }
    pickle.close_dict();
    pickle.key("trace_alloc_overflowed");
    pickle.boolean(!history.whole());
    pickle.key("cachealloc");
    pickle.open_dict();
    for (const auto& [name, value] : trace.settings.all()) {
        pickle.key(name);
        pickle.text(value);
    }
    pickle.key("events");
    pickle.integer(history.counts().events);
    pickle.key("events overwritten");
    pickle.integer(trace.header().counters.overwritten);
    pickle.key("events lost");
    pickle.integer(trace.header().counters.lost);
    pickle.close_dict();
    pickle.close_dict();
}

} // namespace cachealloc::tools
