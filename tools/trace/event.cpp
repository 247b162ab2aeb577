#include "tools/trace/event.h"

namespace cachealloc::tools {

namespace {

using trace::EventKind;

bool is_known(const trace::EventRecord& record) {
    const auto kind = static_cast<std::uint8_t>(record.kind);
    if (kind == 0 || kind > static_cast<std::uint8_t>(EventKind::mark)) return false;
    if (static_cast<std::uint8_t>(record.memory) >= trace::kMemoryTypes) return false;
    if (record.device >= trace::kDevices) return false;
    // What is asked for in vain, and the program's own numbers, may have any size.
    const bool any_size = record.kind == EventKind::out_of_memory || record.kind == EventKind::mark;
    return any_size || record.size < Event::kLargestSize;
}

} // namespace

RecordState decode(const trace::EventRecord& record, std::uint64_t sequence, Event& event) {
    const std::uint64_t found = record.sequence.load(std::memory_order_relaxed);
    if (found == 0) return RecordState::empty;
    if (sequence != 0 && found != sequence) return RecordState::older;
    if (record.check != trace::check_word(record)) return RecordState::torn;
    if (!is_known(record)) return RecordState::unknown;
    event = {.sequence = found,
             .time = record.time,
             .address = record.address,
             .size = record.size,
             .stream = record.stream,
             .stack = record.stack,
             .thread = record.thread,
             .extra = record.extra,
             .free_stack = record.free_stack,
             .kind = record.kind,
             .memory = record.memory,
             .call = record.call,
             .device = record.device,
             .flags = record.flags,
             .pool = record.pool};
    return RecordState::valid;
}

} // namespace cachealloc::tools
