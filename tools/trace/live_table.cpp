#include "tools/trace/live_table.h"

namespace cachealloc::tools {

LiveTable::LiveTable(const TraceFile& file) {
    const TraceSection& section = file.section(trace::SectionType::live);
    const std::vector<std::byte> content = file.load(trace::SectionType::live);
    complete_ = section.bytes != 0 && section.missing == 0 && content.size() == section.bytes &&
                file.header().counters.live_dropped == 0;
    for (std::size_t at = 0; section.stride != 0 && at + section.stride <= content.size();
         at += section.stride) {
        const auto& record = *reinterpret_cast<const trace::EventRecord*>(&content[at]);
        Event event;
        switch (decode(record, 0, event)) {
        case RecordState::empty:
            continue;
        case RecordState::valid:
            break;
        default:
            ++torn_;
            continue;
        }
        if (event.kind == trace::EventKind::alloc) {
            memory_.push_back(event);
        } else if (event.kind == trace::EventKind::segment_alloc ||
                   event.kind == trace::EventKind::segment_map) {
            segments_.push_back(event);
        } else {
            ++torn_;
        }
    }
}

} // namespace cachealloc::tools
