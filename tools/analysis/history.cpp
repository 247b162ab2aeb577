#include "tools/analysis/history.h"

#include <algorithm>
#include <set>
#include <utility>

namespace cachealloc::tools {

namespace {

using trace::EventKind;

constexpr std::uint64_t kProgressEvents = std::uint64_t{1} << 17;

/// What ends an allocation whose free is not in the history, because its address was handed out
/// again. It has no sequence number.
Event implied_free(const Block& block, std::uint64_t time) {
    return {.time = time,
            .address = block.address,
            .size = block.size,
            .stream = block.stream,
            .stack = block.stack,
            .extra = block.extra,
            .kind = EventKind::free,
            .memory = block.memory,
            .device = block.device,
            .flags = trace::kSettled,
            .pool = block.pool};
}

/// Whether the state has what `event` began, or something later in its place.
bool is_begun(const State& state, const Event& event) {
    if (event.kind == EventKind::alloc) {
        const Block* const block = state.live().find(block_of(event).place());
        return block != nullptr && block->since >= event.time;
    }
    const auto segment = state.segments().find(event.address);
    return segment != state.segments().end() && segment->second.since >= event.time;
}

void begin(State& state, const Event& event) {
    if (event.kind == EventKind::alloc) {
        Block replaced;
        state.remove_live(block_of(event).place(), replaced);
        state.add_live(block_of(event));
    } else {
        state.add_segment(segment_of(event));
    }
}

} // namespace

History::History(const Trace& trace, std::function<void(double)> progress)
    : trace_(trace), progress_(std::move(progress)) {
    const EventCounts& ring = trace.events.counts();
    whole_ = trace.header().counters.overwritten == 0 && ring.first_claim <= 1 &&
             trace.file.section(trace::SectionType::events).missing == 0;
    first_time_ = ring.valid != 0 ? ring.first_time : trace.header().start.ticks;
    complete_since_ = ring.valid != 0 ? ring.complete_since : first_time_;
    last_time_ = ring.valid != 0 ? ring.last_time : first_time_;
    reconstruct();
}

void History::reconstruct() {
    EventCursor cursor(trace_.events);
    State& state = end_;
    Event event;
    Block ended;
    while (cursor.next(event)) {
        if (event.kind == EventKind::alloc && state.remove_live(block_of(event).place(), ended))
            ++counts_.implied_frees;
        apply(event, state, ended, true);
        if (cursor.position() % kProgressEvents == 0) show_progress(cursor.position());
    }
    counts_.events = cursor.position();
    counts_.vanished = cursor.vanished();
    reconcile(state);
    counts_.start_blocks = start_.live().size();
    counts_.start_segments = start_.segments().size();
    if (progress_) progress_(1);
}

void History::reconcile(State& state) {
    const bool running = trace_.running();
    const auto take_in = [&](const Event& event) {
        // What a running process allocated since the ring was read belongs to the future.
        if (is_begun(state, event) || (running && event.time > last_time_)) return;
        begin(state, event);
        if (event.time < first_time_) {
            begin(start_, event);
        } else {
            inserted_.push_back(event);
            counts_.inserted_allocs += event.time >= complete_since_ ? 1 : 0;
        }
    };
    std::ranges::for_each(trace_.live.memory(), take_in);
    std::ranges::for_each(trace_.live.segments(), take_in);
    std::ranges::sort(inserted_, {}, &Event::time);

    // A running process may have freed memory since the ring was read; else the table is right.
    if (running || !trace_.live.complete()) return;
    FlatMap<char> known;
    for (const Event& event : trace_.live.memory())
        known.insert(block_of(event).place(), 1);
    std::vector<Place> lost;
    state.live().for_each([&](const Place& place, const Block&) {
        if (known.find(place) == nullptr) lost.push_back(place);
    });
    Block block;
    for (const Place& place : lost) {
        state.remove_live(place, block);
        counts_.lost_bytes += block.size;
    }
    counts_.lost_frees = lost.size();
    std::set<std::uint64_t> gone; // segments that were given back unseen
    for (const auto& [address, segment] : state.segments())
        gone.insert(address);
    for (const Event& event : trace_.live.segments())
        gone.erase(event.address);
    for (const std::uint64_t address : gone)
        state.remove_segment(address);
}

bool History::apply(const Event& event, State& state, Block& ended, bool learning) {
    switch (event.kind) {
    case EventKind::alloc:
        if (event.memory == trace::MemoryType::pooled)
            state.end_pending(event.address, event.bytes());
        state.add_live(block_of(event));
        return false;
    case EventKind::free:
        return apply_free(event, state, ended, learning);
    case EventKind::free_completed:
        if (state.remove_pending(event.address, ended)) return true;
        if (learning && !whole_ && !start_.pending().contains(event.address))
            start_.add_pending(block_of(event));
        return false;
    case EventKind::segment_alloc:
    case EventKind::segment_map:
        state.add_segment(segment_of(event));
        return false;
    case EventKind::segment_free:
    case EventKind::segment_unmap:
        // With its context, a segment goes whatever its blocks are.
        state.end_pending(event.address, event.size);
        if (!state.remove_segment(event.address) && learning && !whole_ &&
            !start_.segments().contains(event.address))
            start_.add_segment(segment_of(event));
        return false;
    default:
        return false;
    }
}

bool History::apply_free(const Event& event, State& state, Block& ended, bool learning) {
    const Block block = block_of(event);
    const bool found = state.remove_live(block.place(), ended);
    if (!found && learning) {
        if (whole_ || start_.live().find(block.place()) != nullptr) {
            ++counts_.unknown_frees;
        } else {
            start_.add_live(block);
        }
    }
    if (event.memory == trace::MemoryType::pooled && !event.has(trace::kSettled)) {
        Block pending = found ? ended : block;
        pending.since = event.time;
        state.add_pending(pending);
    }
    return found;
}

void History::visit(const std::vector<HistoryVisitor*>& visitors) {
    pass(visitors);
    if (progress_) progress_(1);
}

void History::pass(const std::vector<HistoryVisitor*>& visitors) {
    State state = start_;
    EventCursor cursor(trace_.events);
    auto inserted = inserted_.begin();
    Block ended;
    const auto deliver = [&](const Event& event) {
        if (event.kind == EventKind::alloc && state.remove_live(block_of(event).place(), ended)) {
            const Event implied = implied_free(ended, event.time);
            for (HistoryVisitor* const visitor : visitors)
                visitor->on_event(implied, state, &ended);
        }
        const bool found = apply(event, state, ended, false);
        bool all_done = true;
        for (HistoryVisitor* const visitor : visitors) {
            visitor->on_event(event, state, found ? &ended : nullptr);
            all_done = all_done && visitor->done();
        }
        return !all_done;
    };
    for (HistoryVisitor* const visitor : visitors)
        visitor->on_start(state);
    Event event;
    while (cursor.next(event)) {
        for (; inserted != inserted_.end() && inserted->time <= event.time; ++inserted) {
            if (!deliver(*inserted)) return;
        }
        if (!deliver(event)) return;
        if (cursor.position() % kProgressEvents == 0) show_progress(cursor.position());
    }
    for (; inserted != inserted_.end(); ++inserted) {
        if (!deliver(*inserted)) return;
    }
    for (HistoryVisitor* const visitor : visitors)
        visitor->on_end(end_);
}

void History::show_progress(std::uint64_t position) const {
    const std::uint64_t all = trace_.events.counts().valid;
    if (progress_ && all != 0) progress_(static_cast<double>(position) / static_cast<double>(all));
}

} // namespace cachealloc::tools
