// Allocations, waits of the host, gates and contexts.
#include "tests/random/model.h"

#include <algorithm>

namespace random_programs {

namespace {

constexpr int kCaptureUnsupported = 900;

} // namespace

void Model::end_life(Buffer& buffer) {
    buffer.alive = false;
    for (Graph& graph : graphs_) {
        for (const Access& access : graph.accesses) {
            if (access.buffer == &buffer) graph.usable = false;
        }
    }
}

std::optional<Stamp> Model::unseen_result(const Buffer& buffer) const {
    Clock known = host_;
    join(known, results_);
    return conflict(buffer.users, false, known);
}

Verdict Model::step_memory(const Operation& o, bool commit) {
    const std::size_t name = index(o.args[0]);
    switch (o.verb) {
    case Verb::malloc: {
        if (blocks_[name].alive || o.args[1] <= 0) return Verdict::no();
        if (forbidden(o.thread, commit)) return {true, kCaptureUnsupported, true, std::nullopt};
        if (commit) {
            blocks_[name] = Buffer{true, false, false, device_of(o.thread), o.args[1], {}};
        }
        return {};
    }
    case Verb::malloc_async: {
        Stream* const s = usable_stream(o.args[2], o.thread);
        if (blocks_[name].alive || o.args[1] <= 0 || s == nullptr || capturing() || hides_gate(*s))
            return Verdict::no();
        if (commit) {
            const Stamp stamp = submit(*s, own_clock(*s));
            blocks_[name] = Buffer{true, true, false, s->device, o.args[1], {stamp, {}}};
        }
        return {};
    }
    case Verb::free:
        return free_plain(o, commit);
    case Verb::free_async:
        return free_async(o, commit);
    case Verb::pinned:
        if (name >= kPinned || hosts_[name].alive || capturing() || !gates_.empty())
            return Verdict::no();
        if (commit) hosts_[name] = Buffer{true, false, true, device_of(o.thread), 0, {}};
        return {};
    case Verb::unpinned:
        if (name >= kPinned || !hosts_[name].alive || capturing() || !gates_.empty())
            return Verdict::no();
        if (const auto missing = unknown_to_host(hosts_[name], true))
            return {false, 0, true, missing};
        if (commit) end_life(hosts_[name]);
        return {};
    default: { // set_host and check_host
        if (name >= kPinned) return {};
        if (!hosts_[name].alive) return Verdict::no();
        const auto missing = o.verb == Verb::set_host ? unknown_to_host(hosts_[name], true)
                                                      : unseen_result(hosts_[name]);
        return missing ? Verdict{false, 0, true, missing} : Verdict{};
    }
    }
}

// cudaFree waits for the context's work, except for memory of cudaMallocAsync.
Verdict Model::free_plain(const Operation& o, bool commit) {
    Buffer& block = blocks_[index(o.args[0])];
    if (!block.alive) return Verdict::no();
    if (forbidden(o.thread, false)) {
        forbidden(o.thread, commit);
        return {true, kCaptureUnsupported, true, std::nullopt};
    }
    for (const auto& capture : captures_) {
        for (const Access& access : capture->accesses) {
            if (access.buffer == &block) return Verdict::no();
        }
    }
    Clock known = host_;
    if (!block.async) {
        if (!gates_.empty()) return Verdict::no();
        join(known, all_of(block.device));
    }
    if (const auto missing = conflict(block.users, true, known)) return {false, 0, true, missing};
    if (!commit) return {};
    if (!block.async && lean_ != Lean::nothing) {
        join(results_, known);
        join(freed_[index(o.thread)], known);
        // Nothing orders later work on the device beside a capture.
        if (lean_ == Lean::work && !finished_level_ && !capturing()) join(work_, known);
        if (lean_ == Lean::all) host_ = std::move(known);
    }
    end_life(block);
    return {};
}

Verdict Model::free_async(const Operation& o, bool commit) {
    Buffer& block = blocks_[index(o.args[0])];
    Stream* const s = usable_stream(o.args[1], o.thread);
    if (!block.alive || s == nullptr || s->device != block.device || capturing() || hides_gate(*s))
        return Verdict::no();
    const Clock clock = clock_for(*s);
    if (const auto missing = conflict(block.users, true, clock)) return {false, 0, true, missing};
    if (!commit) return {};
    s->unseen = true;
    end_life(block);
    return {};
}

Verdict Model::step_waits(const Operation& o, bool commit) {
    switch (o.verb) {
    case Verb::record:
        return record_event(o, commit);
    case Verb::wait:
        return wait_event(o, commit);
    case Verb::sync: {
        Stream* const s = usable_stream(o.args[0], o.thread);
        if (s == nullptr || s->capture != nullptr || legacy_forbidden(*s)) return Verdict::no();
        if (forbidden(o.thread, false)) return Verdict::no();
        const Clock clock = s->kind == Kind::legacy ? clock_for(*s) : s->last;
        if (depends_on_gate(clock)) return Verdict::no();
        if (commit) {
            join(host_, clock);
            s->unseen = false;
        }
        return {};
    }
    case Verb::sync_event: {
        const Event& e = events_[index(o.args[0])];
        if (!e.alive || e.capture != nullptr || forbidden(o.thread, false) ||
            depends_on_gate(e.clock))
            return Verdict::no();
        if (commit) join(host_, e.clock);
        return {};
    }
    case Verb::sync_device: {
        const std::int64_t device = device_of(o.thread);
        if (forbidden(o.thread, false) || captures_in(device)) return Verdict::no();
        const Clock clock = all_of(device);
        if (depends_on_gate(clock)) return Verdict::no();
        if (commit) join(host_, clock);
        return {};
    }
    case Verb::query: {
        // Says "ready" for certain once the host knows all of the stream.
        Stream* const s = usable_stream(o.args[0], o.thread);
        if (s == nullptr || s->capture != nullptr || legacy_forbidden(*s) ||
            forbidden(o.thread, false))
            return Verdict::no();
        const bool known = !s->unseen && is_ready(s->last, o.thread);
        return {true, 0, known, std::nullopt};
    }
    default: { // query_event
        const Event& e = events_[index(o.args[0])];
        if (!e.alive || e.capture != nullptr || forbidden(o.thread, false)) return Verdict::no();
        return {true, 0, is_ready(e.clock, o.thread), std::nullopt};
    }
    }
}

// A stream may wait for a flag, as a persistent kernel spins on it. Until an operation that sets it
// is submitted, nobody may wait for what comes behind it.
Verdict Model::step_gates(const Operation& o, bool commit) {
    Stream* const s = usable_stream(o.args[0], o.thread);
    const std::int64_t flag = o.args[1];
    if (s == nullptr || s->capture != nullptr || capturing()) return Verdict::no();
    const auto gate =
        std::find_if(gates_.begin(), gates_.end(), [&](const Gate& g) { return g.flag == flag; });
    const Clock clock = clock_for(*s);
    if (o.verb == Verb::await) {
        // A known limit of the shim: while all work is totally ordered, a kernel that has not ended
        // holds up the first further stream. So there must be one. And a call that is made to fail
        // may make the shim give memory back, which waits.
        if (flags_used_[index(flag)] || failures_ || !order_is_lost(s->device))
            return Verdict::no();
        if (!commit) return {};
        flags_used_[index(flag)] = true;
        gates_.push_back({flag, submit(*s, clock)});
        return {};
    }
    if (gate == gates_.end() || depends_on_gate(clock)) return Verdict::no();
    if (!commit) return {};
    if (o.verb == Verb::write_value) finished_level_ = true;
    submit(*s, clock);
    gates_.erase(gate);
    return {};
}

Verdict Model::step_contexts(const Operation& o, bool commit) {
    if (capturing() || !gates_.empty()) return Verdict::no();
    if (o.verb == Verb::reset) {
        const std::int64_t device = device_of(o.thread);
        // What becomes of memory of cudaMallocAsync then is nowhere said.
        for (const Buffer& block : blocks_) {
            if (block.alive && block.async && block.device == device) return Verdict::no();
        }
        Clock known = host_;
        join(known, all_of(device));
        const auto used_elsewhere = [&](const Buffer& buffer) {
            return buffer.alive && buffer.device == device && conflict(buffer.users, true, known);
        };
        if (std::any_of(blocks_.begin(), blocks_.end(), used_elsewhere) ||
            std::any_of(hosts_.begin(), hosts_.end(), used_elsewhere))
            return Verdict::no();
        if (!commit) return {};
        join(host_, all_of(device));
        for (const auto& s : streams_) {
            if (s->device == device && s->alive) {
                s->alive = false;
                created_.erase(s->name);
            }
        }
        legacy_.erase(device);
        std::erase_if(per_thread_, [&](const auto& row) { return row.first.second == device; });
        for (Buffer& block : blocks_) {
            if (block.alive && block.device == device) end_life(block);
        }
        for (Buffer& host : hosts_) {
            if (host.alive && host.device == device) end_life(host);
        }
        for (Event& event : events_) {
            if (event.device == device) event.alive = false;
        }
        for (Graph& graph : graphs_) {
            if (graph.device == device) graph.alive = false;
        }
        peers_ = {};
        return {};
    }
    // Somebody else writes the block: the host must know all its users, and learns of the write.
    const Buffer& block = blocks_[index(o.args[0])];
    if (!block.alive) return Verdict::no();
    if (block.async) return Verdict::no();
    if (o.verb == Verb::publish && block.device != device_of(o.thread)) return Verdict::no();
    // Only a block that begins its segment can be exported under the shim.
    const bool certain = o.verb != Verb::publish;
    const auto missing = unknown_to_host(block, true);
    if (missing) return {false, 0, true, missing};
    if (commit) finished_level_ = true;
    return {true, 0, certain, std::nullopt};
}

} // namespace random_programs
