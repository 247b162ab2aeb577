#include "tests/random/model.h"

#include <algorithm>

namespace random_programs {

void Model::join(Clock& into, const Clock& other) {
    if (into.size() < other.size()) into.resize(other.size());
    for (std::size_t i = 0; i < other.size(); ++i)
        into[i] = std::max(into[i], other[i]);
}

bool Model::knows(const Clock& clock, Stamp stamp) {
    return stamp.epoch == 0 || (stamp.slot < clock.size() && stamp.epoch <= clock[stamp.slot]);
}

std::optional<Stamp> Model::conflict(const Users& users, bool write, const Clock& clock) const {
    if (!knows(clock, users.write)) return users.write;
    if (!write) return std::nullopt;
    for (const Stamp& read : users.reads) {
        if (!knows(clock, read)) return read;
    }
    return std::nullopt;
}

void Model::note(Users& users, bool write, Stamp stamp, const Clock& clock) {
    // What this access comes behind need not be remembered beside it.
    std::erase_if(users.reads, [&](const Stamp& read) { return write || knows(clock, read); });
    if (write) {
        users.write = stamp;
    } else {
        users.reads.push_back(stamp);
    }
}

// Whether a query of `thread` about all of this must say "ready".
bool Model::is_ready(const Clock& clock, int thread) const {
    for (std::uint32_t slot = 0; slot < clock.size(); ++slot) {
        const Stamp stamp{slot, clock[slot]};
        if (!knows(host_, stamp) && !knows(freed_[index(thread)], stamp)) return false;
    }
    return true;
}

// Whether streams have been made that nothing orders among one another.
bool Model::order_is_lost(std::int64_t device) const {
    return std::any_of(streams_.begin(), streams_.end(), [&](const auto& s) {
        return s->device == device && s->kind == Kind::non_blocking;
    });
}

std::optional<Stamp> Model::unknown_to_host(const Buffer& buffer, bool write) const {
    return conflict(buffer.users, write, host_);
}

Model::Stream& Model::make_stream(Kind kind, std::int64_t device, std::int64_t name, int thread) {
    auto& s = *streams_.emplace_back(std::make_unique<Stream>());
    s.kind = kind;
    s.device = device;
    s.name = name;
    s.thread = thread;
    s.slot = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back(&s);
    epochs_.push_back(0);
    return s;
}

Model::Stream* Model::find_stream(std::int64_t name, int thread) {
    const std::int64_t device = device_of(thread);
    if (name == kLegacy) {
        Stream*& s = legacy_[device];
        if (s == nullptr) s = &make_stream(Kind::legacy, device, name, -1);
        return s;
    }
    if (name < 0) {
        Stream*& s = per_thread_[{thread, device}];
        if (s == nullptr) s = &make_stream(Kind::per_thread, device, kPerThread, thread);
        return s;
    }
    const auto it = created_.find(name);
    return it == created_.end() ? nullptr : it->second;
}

Model::Stream* Model::usable_stream(std::int64_t name, int thread) {
    Stream* const s = find_stream(name, thread);
    return s != nullptr && s->device == device_of(thread) ? s : nullptr;
}

bool Model::stream_exists(std::int64_t stream) const {
    return stream <= 0 || created_.count(stream) != 0;
}

std::optional<std::int64_t> Model::stream_of_slot(std::uint32_t slot, int thread) const {
    if (slot == 0 || slot >= slots_.size()) return std::nullopt;
    const Stream& s = *slots_[slot];
    if (!s.alive || s.device != device_of(thread)) return std::nullopt;
    if (s.kind == Kind::per_thread && s.thread != thread) return std::nullopt;
    return s.name;
}

std::optional<Model::Origin> Model::capture_of(int thread) const {
    for (const auto& capture : captures_) {
        if (capture->thread == thread)
            return Origin{capture->origin->name, capture->origin->device};
    }
    return std::nullopt;
}

// Whether an allocation or a free in a stream's order also ties the legacy stream to the others is
// nowhere said, so that here they tie nothing.
Clock Model::own_clock(const Stream& s) const {
    Clock clock = host_;
    join(clock, work_);
    join(clock, s.last);
    return clock;
}

bool Model::hides_gate(const Stream& s) const {
    const Clock all = clock_for(s);
    const Clock own = own_clock(s);
    return std::any_of(gates_.begin(), gates_.end(), [&](const Gate& gate) {
        return knows(all, gate.stamp) && !knows(own, gate.stamp);
    });
}

// The legacy stream waits for all blocking streams, and they for it.
void Model::join_legacy_rules(Clock& clock, const Stream& s) const {
    if (s.kind == Kind::legacy) {
        for (const auto& other : streams_) {
            if (other->alive && other->device == s.device && other->blocking())
                join(clock, other->last);
        }
    } else if (s.blocking()) {
        const auto legacy = legacy_.find(s.device);
        if (legacy != legacy_.end()) join(clock, legacy->second->last);
    }
}

Clock Model::clock_for(const Stream& s) const {
    Clock clock = own_clock(s);
    join_legacy_rules(clock, s);
    return clock;
}

// Behind what the kernel in front came behind, and what the host and other streams ask for now.
Clock Model::early_clock(const Stream& s) const {
    Clock clock = host_;
    join(clock, work_);
    join(clock, s.front);
    join_legacy_rules(clock, s);
    return clock;
}

Stamp Model::submit(Stream& s, Clock clock) {
    s.after_kernel = false;
    if (lean_ != Lean::all) freed_ = {}; // the shim's answers after a free hold until further work
    const Stamp stamp{s.slot, ++epochs_[s.slot]};
    if (clock.size() <= s.slot) clock.resize(s.slot + 1);
    clock[s.slot] = stamp.epoch;
    s.last = std::move(clock);
    return stamp;
}

// A kernel that may start before the one in front of it has a slot of its own, since its place on
// the stream does not say what it comes behind. What follows comes behind both.
Stamp Model::submit_early(Stream& s, Clock clock) {
    const Stamp stamp{static_cast<std::uint32_t>(slots_.size()), 1};
    slots_.push_back(&s);
    epochs_.push_back(1);
    clock.resize(slots_.size());
    clock[stamp.slot] = 1;
    join(s.last, clock);
    return stamp;
}

Clock Model::all_of(std::int64_t device) const {
    Clock clock;
    for (const auto& s : streams_) {
        if (s->device == device) join(clock, s->last);
    }
    return clock;
}

bool Model::depends_on_gate(const Clock& clock) const {
    return std::any_of(gates_.begin(), gates_.end(),
                       [&](const Gate& gate) { return knows(clock, gate.stamp); });
}

// Work on a stream: every access must come behind whatever it conflicts with.
Verdict Model::work(Stream& s, const Work& what, bool commit) {
    for (const Access& access : what.accesses) {
        if (!access.buffer->alive) return Verdict::no();
        const bool here = access.buffer->is_host || access.buffer->device == s.device;
        const bool reached =
            what.copies ? s.capture == nullptr : peers_[index(s.device)] && !access.buffer->async;
        if (!here && !reached) return Verdict::no();
    }
    if (s.capture != nullptr)
        return what.host_waits ? Verdict::no() : captured_work(s, what.accesses, commit);
    if (legacy_forbidden(s)) return Verdict::no();
    const bool early = what.early && s.after_kernel;
    const Clock clock = early ? early_clock(s) : clock_for(s);
    if (what.host_waits && depends_on_gate(clock)) return Verdict::no();
    for (const Access& access : what.accesses) {
        if (const auto missing = conflict(access.buffer->users, access.write, clock))
            return {false, 0, true, missing};
    }
    if (!commit) return {};
    const Stamp stamp = early ? submit_early(s, clock) : submit(s, clock);
    for (const Access& access : what.accesses)
        note(access.buffer->users, access.write, stamp, early ? clock : s.last);
    if (what.kernel && !early) {
        s.after_kernel = true;
        s.front = clock;
    }
    if (what.host_waits) join(host_, s.last);
    return {};
}

Verdict Model::captured_work(Stream& s, const std::vector<Access>& accesses, bool commit) {
    constexpr int kInvalidated = 901;
    Capture& capture = *s.capture;
    if (capture.invalidated) return {true, kInvalidated, true, std::nullopt};
    for (const Access& access : accesses) {
        if (conflict(capture.users[access.buffer], access.write, s.captured)) return Verdict::no();
    }
    if (!commit) return {};
    const Stamp stamp{s.slot, ++epochs_[s.slot]};
    if (s.captured.size() <= s.slot) s.captured.resize(s.slot + 1);
    s.captured[s.slot] = stamp.epoch;
    for (const Access& access : accesses) {
        note(capture.users[access.buffer], access.write, stamp, s.captured);
        capture.accesses.push_back(access);
    }
    return {};
}

Verdict Model::step(const Operation& o, bool commit) {
    if (o.thread < 0 || o.thread >= kThreads) return Verdict::no();
    switch (o.verb) {
    case Verb::device:
    case Verb::stream:
    case Verb::destroy:
    case Verb::event:
    case Verb::unevent:
    case Verb::peers:
    case Verb::fail:
    case Verb::advance:
        return step_objects(o, commit);
    case Verb::malloc:
    case Verb::free:
    case Verb::malloc_async:
    case Verb::free_async:
    case Verb::pinned:
    case Verb::unpinned:
    case Verb::set_host:
    case Verb::check_host:
        return step_memory(o, commit);
    case Verb::record:
    case Verb::wait:
    case Verb::sync:
    case Verb::sync_event:
    case Verb::sync_device:
    case Verb::query:
    case Verb::query_event:
        return step_waits(o, commit);
    case Verb::capture:
    case Verb::end_capture:
    case Verb::launch:
    case Verb::ungraph:
        return step_capture(o, commit);
    case Verb::await:
    case Verb::signal:
    case Verb::write_value:
        return step_gates(o, commit);
    case Verb::visit:
    case Verb::publish:
    case Verb::reset:
        return step_contexts(o, commit);
    default:
        return step_work(o, commit);
    }
}

Verdict Model::step_objects(const Operation& o, bool commit) {
    const std::int64_t name = o.args[0];
    switch (o.verb) {
    case Verb::device:
        if (commit) current_[index(o.thread)] = name;
        if (commit && name != 0) finished_level_ = true;
        return {};
    case Verb::stream:
        if (name <= 0 || created_.count(name) != 0) return Verdict::no();
        if (commit) {
            created_[name] = &make_stream(o.args[1] == 1 ? Kind::non_blocking : Kind::blocking,
                                          device_of(o.thread), name, -1);
        }
        return {};
    case Verb::destroy: {
        Stream* const s = name > 0 ? find_stream(name, o.thread) : nullptr;
        // A gate would shut in a legacy stream unseen by clock_for().
        if (s == nullptr || s->capture != nullptr || !gates_.empty()) return Verdict::no();
        if (commit) {
            s->alive = false;
            created_.erase(name);
        }
        return {};
    }
    case Verb::event:
        if (events_[index(name)].alive) return Verdict::no();
        if (commit) {
            events_[index(name)] = Event{};
            events_[index(name)].alive = true;
            events_[index(name)].device = device_of(o.thread);
        }
        return {};
    case Verb::unevent:
        if (!events_[index(name)].alive) return Verdict::no();
        if (commit) events_[index(name)].alive = false;
        return {};
    case Verb::peers: {
        const auto device = index(device_of(o.thread));
        if (index(name) == device || peers_[device] || capturing()) return Verdict::no();
        if (commit) peers_[device] = finished_level_ = true;
        return {};
    }
    case Verb::fail: // the driver giving memory back for want of it waits, which a gate would not
                     // end
        if (!gates_.empty()) return Verdict::no();
        if (commit) failures_ = true;
        return {};
    default: // advance concerns the simulated CUDA alone
        return {};
    }
}

// Kernels, copies and fills.
Verdict Model::step_work(const Operation& o, bool commit) {
    const auto block = [&](std::size_t i) { return &blocks_[index(o.args[i])]; };
    const auto host = [&](std::size_t i) { return &hosts_[index(o.args[i])]; };
    const auto pageable = [&](std::size_t i) { return o.args[i] >= kPinned; };
    const auto on = [&](std::size_t i, const Work& what) {
        Stream* const s = usable_stream(o.args[i], o.thread);
        return s == nullptr ? Verdict::no() : work(*s, what, commit);
    };
    // Pageable memory is copied at once, which a capture cannot.
    const auto staged = [&](std::size_t i, const Work& what) {
        const Stream* const s = usable_stream(o.args[i], o.thread);
        return s == nullptr || s->capture != nullptr ? Verdict::no() : on(i, what);
    };
    // Those without a stream run on the legacy one. Beside a capture most of them are errors.
    const auto now = [&](const Work& what) {
        return capturing() ? Verdict::no() : work(*find_stream(kLegacy, o.thread), what, commit);
    };
    if (arguments_of(o.verb).starts_with("bb") && o.args[0] == o.args[1]) return Verdict::no();
    switch (o.verb) {
    case Verb::fill:
        return on(1, {{{block(0), true}}, false, false, true, false});
    case Verb::overlap: {
        const Stream* const s = usable_stream(o.args[1], o.thread);
        if (s == nullptr || s->capture != nullptr) return Verdict::no();
        return on(1, {{{block(0), true}}, false, false, true, true});
    }
    case Verb::memset:
        return on(1, {{{block(0), true}}});
    case Verb::copy:
        return on(2, {{{block(0), true}, {block(1), false}}, false, false, true, false});
    case Verb::memset_now:
        return now({{{block(0), true}}});
    case Verb::h2d:
        if (pageable(1)) return staged(2, {{{block(0), true}}, false, true});
        return on(2, {{{block(0), true}, {host(1), false}}, false, true});
    case Verb::h2d_now:
        if (pageable(1)) return now({{{block(0), true}}, true, true});
        return now({{{block(0), true}, {host(1), false}}, true, true});
    case Verb::d2h:
        if (pageable(0)) return staged(2, {{{block(1), false}}, true, true});
        return on(2, {{{host(0), true}, {block(1), false}}, false, true});
    case Verb::d2h_now:
        if (pageable(0)) return now({{{block(1), false}}, true, true});
        return now({{{host(0), true}, {block(1), false}}, true, true});
    case Verb::check:
        return now({{{block(0), false}}, true, true});
    case Verb::peer: // there is no per-thread entry point
        if (o.args[2] == kPerThreadEntry) return Verdict::no();
        [[fallthrough]];
    case Verb::d2d:
    case Verb::plane:
        return on(2, {{{block(0), true}, {block(1), false}}, false, true});
    case Verb::d2d_now:
    case Verb::plane_now:
    case Verb::peer_now:
        return now({{{block(0), true}, {block(1), false}}, false, true});
    case Verb::host_func:
        return on(0, {});
    default:
        return Verdict::no();
    }
}

} // namespace random_programs
