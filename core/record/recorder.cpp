#include "core/record/recorder.h"

#include "core/record/recorder_parts.h"

namespace cachealloc {

using trace::AddressSpace;
using trace::EventKind;
using trace::EventRecord;

namespace {

/// Everything but time, thread and sequence.
void describe(EventRecord& record, EventKind kind, const MemoryEvent& event,
              const ThreadState& state) {
    record.address = event.address;
    record.size = event.size;
    record.stream = event.stream;
    record.stack = state.stack;
    record.kind = kind;
    record.memory = event.memory;
    record.device = event.device;
    record.flags = static_cast<std::uint8_t>(event.flags | state.stack_flags);
    record.extra = event.extra;
    record.free_stack = 0;
    record.pool = event.pool;
    record.call = state.call;
}

/// What a free says of the allocation that it ends.
void take_over(EventRecord& record, const EventRecord& taken) {
    record.size = taken.size;
    record.extra = taken.extra;
    record.memory = taken.memory;
    record.stack = taken.stack;
    record.flags = static_cast<std::uint8_t>((record.flags & ~trace::kCutStack) |
                                             (taken.flags & trace::kCutStack));
}

void seal(EventRecord& record) {
    record.check = trace::check_word(record);
}

bool begins_segment(EventKind kind) {
    return kind == EventKind::segment_alloc || kind == EventKind::segment_map;
}

bool ends_segment(EventKind kind) {
    return kind == EventKind::segment_free || kind == EventKind::segment_unmap;
}

/// Runs `action(parts, state)` unless this process does not record, or a signal handler interrupted
/// the recorder.
template <typename Action>
void inside(RecorderParts& parts, Action action) {
    if (!RecorderParts::alive()) return;
    ThreadState& state = t_state;
    const Writing writing(state);
    if (writing) {
        action(parts, state);
    } else {
        parts.header.counters.nested.fetch_add(1, std::memory_order_relaxed);
    }
}

} // namespace

void Recorder::allocated(const MemoryEvent& event) {
    inside(parts_, [&](RecorderParts& parts, ThreadState& state) {
        EventRecord record;
        parts.prefetch(state, trace::space_of(event.memory), event.address);
        record.time = parts.clock.after_acquire();
        describe(record, EventKind::alloc, event, state);
        if (!parts.prepare(state, record)) return;
        seal(record);
        parts.enter(state, record);
        parts.count(state, record, 1);
        parts.stack_table.add(record.stack, record.size);
        parts.commit(state, record);
    });
}

void Recorder::freed(AddressSpace space, const MemoryEvent& event) {
    inside(parts_, [&](RecorderParts& parts, ThreadState& state) {
        EventRecord record;
        parts.prefetch(state, space, event.address);
        record.time = parts.clock.before_release();
        describe(record, EventKind::free, event, state);
        if (!parts.prepare(state, record)) return;
        record.free_stack = record.stack;
        record.stack = 0;
        state.taken.sequence.store(0, std::memory_order_relaxed);
        if (parts.live.take(space, event.address, state.taken)) {
            take_over(record, state.taken);
            parts.count(state, state.taken, -1);
        } else {
            parts.header.counters.unknown_frees.fetch_add(1, std::memory_order_relaxed);
            // Most likely it is one of those that had no room; else it began before us.
            if (parts.header.counters.live_dropped.load(std::memory_order_relaxed) != 0)
                parts.count(state, record, -1);
        }
        seal(record);
        parts.commit(state, record);
    });
}

void Recorder::not_freed(const MemoryEvent& event) {
    inside(parts_, [&](RecorderParts& parts, ThreadState& state) {
        EventRecord record;
        record.time = parts.clock.after_acquire();
        describe(record, EventKind::alloc, event, state);
        EventRecord& taken = state.taken;
        const bool same = taken.sequence.exchange(0, std::memory_order_relaxed) != 0 &&
                          taken.address == event.address &&
                          trace::space_of(taken.memory) == trace::space_of(event.memory);
        if (same) {
            take_over(record, taken);
            record.call = taken.call;
        }
        if (!parts.prepare(state, record)) return;
        seal(record);
        parts.enter(state, record);
        parts.count(state, record, 1);
        parts.commit(state, record);
    });
}

void Recorder::note(EventKind kind, const MemoryEvent& event) {
    inside(parts_, [&](RecorderParts& parts, ThreadState& state) {
        EventRecord record;
        record.time =
            begins_segment(kind) ? parts.clock.after_acquire() : parts.clock.before_release();
        describe(record, kind, event, state);
        if (!parts.prepare(state, record)) return;
        seal(record);
        if (kind == EventKind::out_of_memory)
            parts.header.seen.fetch_or(trace::kOutOfMemory, std::memory_order_relaxed);
        if (begins_segment(kind)) {
            parts.enter(state, record);
            parts.count(state, record, 1);
        } else if (ends_segment(kind)) {
            EventRecord ended;
            parts.live.take(AddressSpace::segment, event.address, ended);
            parts.count(state, record, -1);
        }
        parts.commit(state, record);
    });
}

bool Recorder::find(AddressSpace space, std::uint64_t address, MemoryEvent& event) {
    bool there = false;
    inside(parts_, [&](RecorderParts& parts, ThreadState&) {
        EventRecord found;
        there = parts.live.find(space, address, found);
        if (!there) return;
        event.address = found.address;
        event.size = found.size;
        event.stream = found.stream;
        event.memory = found.memory;
        event.device = found.device;
        event.flags = found.flags;
        event.pool = found.pool;
        event.extra = found.extra;
    });
    return there;
}

void Recorder::end_all(bool (*chosen)(const EventRecord&, void* context), void* context) {
    inside(parts_, [&](RecorderParts& parts, ThreadState& state) {
        EventRecord ended;
        std::uint32_t shard = 0;
        while (parts.live.take_if(chosen, context, shard, ended)) {
            EventRecord record;
            copy_content(record, ended);
            record.time = parts.clock.before_release();
            record.kind = begins_segment(ended.kind) ? EventKind::segment_free : EventKind::free;
            if (record.kind == EventKind::free) record.flags |= trace::kSettled;
            record.free_stack = state.stack;
            record.call = trace::CallName::context_end;
            if (!parts.prepare(state, record)) return;
            parts.count(state, ended, -1);
            seal(record);
            parts.commit(state, record);
        }
    });
}

void Recorder::set(std::string_view name, std::string_view value) {
    inside(parts_, [&](RecorderParts& parts, ThreadState&) { parts.texts.append(name, value); });
}

void Recorder::set_statistic(std::string_view name, std::uint64_t value) {
    inside(parts_, [&](RecorderParts& parts, ThreadState&) {
        parts.statistics.set(name, value, parts.clock.before_release());
    });
}

void Recorder::set_device(std::uint32_t device, std::string_view name, std::uint64_t total_bytes) {
    inside(parts_, [&](RecorderParts& parts, ThreadState&) {
        parts.devices.set_device(device, name, total_bytes);
    });
}

void Recorder::module(const trace::ModuleRecord& record) {
    inside(parts_, [&](RecorderParts& parts, ThreadState&) {
        if (!parts.modules.append(record))
            parts.header.seen.fetch_or(trace::kModulesFull, std::memory_order_relaxed);
    });
}

void Recorder::modules_changed() {
    if (RecorderParts::alive()) parts_.stack_table.next_generation();
}

trace::Counters& Recorder::counters() {
    return parts_.header.counters;
}

void Recorder::mark_seen(trace::Seen what) {
    if (RecorderParts::alive()) parts_.header.seen.fetch_or(what, std::memory_order_relaxed);
}

std::uint64_t Recorder::now() const {
    return parts_.clock.after_acquire();
}

const char* Recorder::path() const {
    return parts_.file.path();
}

void RecordedCall::begin(trace::CallName call, bool with_stack) {
    ThreadState& state = t_state;
    outer_stack_ = state.stack;
    outer_flags_ = state.stack_flags;
    outer_call_ = state.call;
    state.stack = 0;
    state.stack_flags = 0;
    state.call = call;
    ++state.calls;
    RecorderParts& parts = recorder_->parts_;
    const bool wanted =
        with_stack && parts.stacks != nullptr && (parts.free_stacks || !gives_back(call));
    if (wanted && !state.capturing && RecorderParts::alive()) parts.capture(state);
}

void RecordedCall::end() {
    ThreadState& state = t_state;
    if (--state.calls == 0 && RecorderParts::alive()) recorder_->parts_.tidy(state);
    state.stack = outer_stack_;
    state.stack_flags = outer_flags_;
    state.call = outer_call_;
}

} // namespace cachealloc
