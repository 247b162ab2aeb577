// Events, captures and graphs.
#include "tests/random/model.h"

#include <algorithm>

namespace random_programs {

namespace {

constexpr std::int64_t kGlobal = 0;
constexpr std::int64_t kRelaxed = 2;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureUnjoined = 904;

} // namespace

// A call that captures forbid: in the thread of one that is not relaxed, and in every thread beside
// a global one.
bool Model::forbidden(int thread, bool commit) {
    bool found = false;
    for (const auto& capture : captures_) {
        const bool in_the_way =
            capture->thread == thread ? capture->mode != kRelaxed : capture->mode == kGlobal;
        if (!in_the_way) continue;
        found = true;
        if (commit) capture->invalidated = true;
    }
    return found;
}

int Model::capture_at(std::int64_t stream, int thread) {
    const Stream* const s = usable_stream(stream, thread);
    return s == nullptr || s->capture == nullptr ? -1 : s->capture->serial;
}

bool Model::captures_in(std::int64_t device) const {
    return std::any_of(captures_.begin(), captures_.end(),
                       [&](const auto& c) { return c->origin->device == device; });
}

bool Model::legacy_forbidden(const Stream& s) const {
    if (s.kind != Kind::legacy) return false;
    return std::any_of(captures_.begin(), captures_.end(), [&](const auto& capture) {
        return std::any_of(capture->streams.begin(), capture->streams.end(),
                           [&](const Stream* c) { return c->device == s.device && c->blocking(); });
    });
}

Verdict Model::record_event(const Operation& o, bool commit) {
    Event& e = events_[index(o.args[0])];
    Stream* const s = usable_stream(o.args[1], o.thread);
    if (!e.alive || s == nullptr || e.device != s->device || legacy_forbidden(*s))
        return Verdict::no();
    if (s->capture != nullptr) {
        if (s->capture->invalidated) return {true, kCaptureInvalidated, true, std::nullopt};
        if (commit) {
            e.capture = s->capture;
            e.captured = s->captured;
            e.recorded = true;
        }
        return {};
    }
    if (!commit) return {};
    submit(*s, clock_for(*s));
    e.capture = nullptr;
    e.clock = s->last;
    e.recorded = true;
    return {};
}

Verdict Model::wait_event(const Operation& o, bool commit) {
    Stream* const s = usable_stream(o.args[0], o.thread);
    const Event& e = events_[index(o.args[1])];
    if (!e.alive || !e.recorded || s == nullptr) return Verdict::no();
    if (e.capture != nullptr) {
        // The capture spreads; a legacy stream or one of another capture would end it.
        const bool open =
            std::find(captures_.begin(), captures_.end(), e.capture) != captures_.end();
        if (!open || e.capture->invalidated || s->kind == Kind::legacy || s->device != e.device ||
            (s->capture != nullptr && s->capture != e.capture))
            return Verdict::no();
        if (!commit) return {};
        if (s->capture == nullptr) {
            s->capture = e.capture;
            s->captured.clear();
            e.capture->streams.push_back(s);
        }
        join(s->captured, e.captured);
        return {};
    }
    if (s->capture != nullptr || legacy_forbidden(*s)) return Verdict::no();
    if (!commit) return {};
    Clock clock = clock_for(*s);
    join(clock, e.clock);
    submit(*s, clock);
    return {};
}

Verdict Model::begin_capture(const Operation& o, bool commit) {
    Stream* const s = usable_stream(o.args[0], o.thread);
    if (s == nullptr || s->kind == Kind::legacy || s->capture != nullptr || !gates_.empty() ||
        o.args[1] > kRelaxed)
        return Verdict::no();
    if (!commit) return {};
    const auto capture = std::make_shared<Capture>();
    capture->serial = next_capture_++;
    capture->mode = o.args[1];
    capture->thread = o.thread;
    capture->origin = s;
    capture->streams.push_back(s);
    s->capture = capture;
    s->captured.clear();
    captures_.push_back(capture);
    return {};
}

void Model::leave(const std::shared_ptr<Capture>& capture) {
    for (Stream* s : capture->streams) {
        s->capture = nullptr;
        s->captured.clear();
    }
    std::erase(captures_, capture);
}

Verdict Model::end_capture(const Operation& o, bool commit) {
    Stream* const s = usable_stream(o.args[0], o.thread);
    Graph& graph = graphs_[index(o.args[1])];
    if (s == nullptr || s->capture == nullptr || graph.alive) return Verdict::no();
    const std::shared_ptr<Capture> capture = s->capture;
    if (capture->origin != s || capture->thread != o.thread) return Verdict::no();
    const bool joined =
        std::all_of(capture->streams.begin(), capture->streams.end(), [&](const Stream* other) {
            const std::uint32_t slot = other->slot;
            return slot >= other->captured.size() ||
                   knows(s->captured, {slot, other->captured[slot]});
        });
    const int code = capture->invalidated ? kCaptureInvalidated : joined ? 0 : kCaptureUnjoined;
    if (!commit) return {true, code, true, std::nullopt};
    leave(capture);
    if (code == 0) {
        graph = Graph{};
        graph.alive = true;
        graph.device = s->device;
        graph.accesses = capture->accesses;
        for (const Access& access : graph.accesses) {
            if (!access.buffer->alive) graph.usable = false;
        }
    }
    return {true, code, true, std::nullopt};
}

Verdict Model::launch(const Operation& o, bool commit) {
    Graph& graph = graphs_[index(o.args[0])];
    Stream* const s = usable_stream(o.args[1], o.thread);
    if (!graph.alive || !graph.usable || s == nullptr || s->capture != nullptr ||
        s->device != graph.device || legacy_forbidden(*s))
        return Verdict::no();
    Clock clock = clock_for(*s);
    // An executable graph's nodes never overlap those of its previous launch.
    if (!graph.accesses.empty()) join(clock, graph.last);
    for (const Access& access : graph.accesses) {
        if (const auto missing = conflict(access.buffer->users, access.write, clock))
            return {false, 0, true, missing};
    }
    if (!commit) return {};
    const Stamp stamp = submit(*s, clock);
    graph.last = s->last;
    for (const Access& access : graph.accesses)
        note(access.buffer->users, access.write, stamp, s->last);
    return {};
}

Verdict Model::step_capture(const Operation& o, bool commit) {
    switch (o.verb) {
    case Verb::capture:
        return begin_capture(o, commit);
    case Verb::end_capture:
        return end_capture(o, commit);
    case Verb::launch:
        return launch(o, commit);
    default: {
        Graph& graph = graphs_[index(o.args[0])];
        if (!graph.alive) return Verdict::no();
        if (commit) graph.alive = false;
        return {};
    }
    }
}

} // namespace random_programs
