#include "tools/trace/live_table.h"

#include <algorithm>
#include <tuple>

namespace cachealloc::tools {

namespace {

/// A process that was killed while it moved an entry may leave it twice.
void drop_doubles(std::vector<Event>& entries) {
    const auto key = [](const Event& event) { return std::tie(event.address, event.sequence); };
    std::sort(entries.begin(), entries.end(),
              [&](const Event& a, const Event& b) { return key(a) < key(b); });
    const auto same = [&](const Event& a, const Event& b) {
        return key(a) == key(b) && a.memory == b.memory && a.time == b.time;
    };
    entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
}

} // namespace

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
        case RecordState::unknown:
            ++unknown_;
            continue;
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
            ++unknown_;
        }
    }
    drop_doubles(memory_);
    drop_doubles(segments_);
}

} // namespace cachealloc::tools
