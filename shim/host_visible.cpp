#include "shim/host_visible.h"

#include <algorithm>

namespace cachealloc::shim {

namespace {

constexpr std::size_t kProbes = 8; // places of a table that a key may be in

std::size_t hash(std::uint64_t key) {
    return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15ULL >> 32);
}
std::size_t hash(CUevent event) {
    return hash(reinterpret_cast<std::uintptr_t>(event));
}

bool belongs(const HostVisible::Stream& stream, CUcontext context) {
    return stream.context == context || stream.owner == context;
}

} // namespace

void HostVisible::Cover::add(Number number) {
    if (number == 0 || has(number)) return;
    if (count_ < kMost) {
        numbers_[count_++] = number;
        return;
    }
    *std::min_element(numbers_.begin(), numbers_.end()) = number;
}

bool HostVisible::Cover::has(Number number) const {
    return std::find(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(count_),
                     number) != numbers_.begin() + static_cast<std::ptrdiff_t>(count_);
}

void HostVisible::submitted(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    const Number number = ++latest_;
    Pending* const place = stream.id != 0 ? place_for(stream.id) : nullptr;
    if (place == nullptr) {
        if (unlisted_ == 0) {
            outstanding_.fetch_add(1, std::memory_order_release);
            unlisted_owner_ = stream.owner;
        } else if (unlisted_owner_ != stream.owner) {
            unlisted_owner_ = nullptr;
        }
        unlisted_ = number;
        return;
    }
    if (place->number == 0) outstanding_.fetch_add(1, std::memory_order_release);
    *place = {stream, number, true};
}

// The stream's slot, else the first free one, else null.
HostVisible::Pending* HostVisible::place_for(std::uint64_t id) {
    Pending* free = nullptr;
    for (Pending& pending : listed()) {
        if (pending.number == 0) {
            if (free == nullptr) free = &pending;
        } else if (pending.stream.id == id) {
            return &pending;
        }
    }
    if (free == nullptr && listed_ < kPending) free = &pending_[listed_++];
    return free;
}

template <class Which>
void HostVisible::settle_where(Which which) {
    for (Pending& pending : listed()) {
        if (pending.number == 0 || !which(pending)) continue;
        pending.number = 0;
        outstanding_.fetch_sub(1, std::memory_order_release);
    }
}

template <class Which>
void HostVisible::ask(Probe& probe, Which which) {
    settle_where([&](const Pending& pending) {
        return pending.askable && which(pending) && probe.idle(pending.stream);
    });
}

HostVisible::Number HostVisible::latest() {
    const std::lock_guard lock(mutex_);
    return latest_;
}

bool HostVisible::is_pending(Number number) {
    const auto all = listed();
    return std::any_of(all.begin(), all.end(),
                       [&](const Pending& pending) { return pending.number == number; });
}

// What the next work on the stream comes after, as far as it is outstanding.
HostVisible::Cover HostVisible::cover_of(std::uint64_t id) {
    Cover cover;
    if (id == 0) return cover;
    for (const Pending& pending : listed()) {
        if (pending.number != 0 && pending.stream.id == id) cover.add(pending.number);
    }
    if (const Joined* const joined = find_joined(id)) {
        joined->cover.for_each([&](Number number) {
            if (is_pending(number)) cover.add(number);
        });
    }
    return cover;
}

HostVisible::Cover HostVisible::covered_by_stream(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    return cover_of(id);
}

HostVisible::Seen HostVisible::covered_by_event(CUevent event) {
    const std::lock_guard lock(mutex_);
    const Event* const known = find_event(event);
    if (known == nullptr || known->version <= forgotten_) return {};
    return {known->cover, known->version};
}

void HostVisible::settle(const Cover& cover) {
    if (cover.empty()) return;
    const std::lock_guard lock(mutex_);
    settle_where([&](const Pending& pending) { return cover.has(pending.number); });
}

bool HostVisible::is_current(CUevent event, const Seen& seen) {
    const Event* const known = find_event(event);
    return known != nullptr && known->version == seen.version && seen.version > forgotten_;
}

void HostVisible::settle(CUevent event, const Seen& seen) {
    if (seen.cover.empty()) return;
    const std::lock_guard lock(mutex_);
    if (!is_current(event, seen)) return;
    settle_where([&](const Pending& pending) { return seen.cover.has(pending.number); });
}

void HostVisible::settle_context(CUcontext context, Number upto) {
    const std::lock_guard lock(mutex_);
    settle_where([&](const Pending& pending) {
        return pending.number <= upto && pending.stream.context == context;
    });
}

void HostVisible::settle_owner(CUcontext owner, Number upto, Probe& probe) {
    const std::lock_guard lock(mutex_);
    settle_where([&](const Pending& pending) {
        return pending.number <= upto && pending.stream.context == owner;
    });
    if (unlisted_ != 0 && unlisted_ <= upto && unlisted_owner_ == owner) {
        unlisted_ = 0;
        outstanding_.fetch_sub(1, std::memory_order_release);
    }
    ask(probe, [&](const Pending& pending) { return pending.stream.owner == owner; });
}

void HostVisible::settle_idle(Probe& probe) {
    const std::lock_guard lock(mutex_);
    ask(probe, [](const Pending&) { return true; });
}

bool HostVisible::must_wait(CUcontext owner, Probe& probe) {
    const std::lock_guard lock(mutex_);
    const auto here = [&](const Pending& pending) { return pending.stream.owner == owner; };
    ask(probe, here);
    if (unlisted_ != 0 && (unlisted_owner_ == nullptr || unlisted_owner_ == owner)) return true;
    const auto all = listed();
    return std::any_of(all.begin(), all.end(), [&](const Pending& pending) {
        return pending.number != 0 && here(pending);
    });
}

HostVisible::Event* HostVisible::find_event(CUevent event) {
    const std::size_t start = hash(event);
    for (std::size_t i = 0; i < kProbes; ++i) {
        Event& entry = events_[(start + i) % kEvents];
        if (entry.event == event) return &entry;
    }
    return nullptr;
}

// The event's entry, at the cost of the one that changed longest ago. An entry between begin and
// end of a record must stay: the end has to find it.
HostVisible::Event* HostVisible::make_event(CUevent event) {
    if (Event* const known = find_event(event)) return known;
    const std::size_t start = hash(event);
    Event* oldest = nullptr;
    for (std::size_t i = 0; i < kProbes; ++i) {
        Event& entry = events_[(start + i) % kEvents];
        if (entry.open != 0) continue;
        if (oldest == nullptr || entry.version < oldest->version) oldest = &entry;
    }
    if (oldest != nullptr) {
        *oldest = {};
        oldest->event = event;
    }
    return oldest;
}

HostVisible::Record HostVisible::begin_record(CUevent event, std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    Event* const entry = make_event(event);
    if (entry == nullptr) return {};
    entry->cover = {};
    entry->version = ++versions_;
    entry->mixed = entry->open != 0;
    ++entry->open;
    return {cover_of(id), true};
}

void HostVisible::end_record(CUevent event, const Record& record, bool success) {
    if (!record.followed) return;
    const std::lock_guard lock(mutex_);
    Event* const entry = find_event(event);
    if (entry == nullptr || entry->open == 0) return;
    if (success && !entry->mixed) entry->cover = record.cover;
    if (--entry->open == 0) entry->mixed = false;
}

HostVisible::Joined* HostVisible::find_joined(std::uint64_t id) {
    const std::size_t start = hash(id);
    for (std::size_t i = 0; i < kProbes; ++i) {
        Joined& entry = joined_[(start + i) % kStreams];
        if (entry.id == id) return &entry;
    }
    return nullptr;
}

HostVisible::Joined* HostVisible::make_joined(std::uint64_t id) {
    if (Joined* const known = find_joined(id)) return known;
    for (std::size_t i = 0; i < kProbes; ++i) {
        Joined& entry = joined_[(hash(id) + i) % kStreams];
        bool useful = false;
        entry.cover.for_each([&](Number number) { useful = useful || is_pending(number); });
        if (useful) continue;
        entry = {id, {}};
        return &entry;
    }
    return nullptr;
}

void HostVisible::joined(std::uint64_t id, CUevent event, const Seen& seen) {
    if (seen.cover.empty() || id == 0) return;
    const std::lock_guard lock(mutex_);
    if (!is_current(event, seen)) return;
    if (Joined* const entry = make_joined(id)) {
        seen.cover.for_each([&](Number number) { entry->cover.add(number); });
    }
}

// An event that is just being recorded may be so with its old meaning: it counts as mixed.
void HostVisible::forget_event(CUevent event) {
    const std::lock_guard lock(mutex_);
    Event* const entry = find_event(event);
    if (entry == nullptr) return;
    entry->cover = {};
    entry->version = ++versions_;
    entry->mixed = entry->open != 0;
}

void HostVisible::forget_events() {
    const std::lock_guard lock(mutex_);
    forgotten_ = versions_;
}

void HostVisible::stream_ends(CUstream handle) {
    const std::lock_guard lock(mutex_);
    for (Pending& pending : listed()) {
        if (pending.stream.handle == handle) pending.askable = false;
    }
}

void HostVisible::context_ends(CUcontext context) {
    const std::lock_guard lock(mutex_);
    for (Pending& pending : listed()) {
        if (belongs(pending.stream, context)) pending.askable = false;
    }
}

void HostVisible::context_ended(CUcontext context) {
    const std::lock_guard lock(mutex_);
    settle_where([&](const Pending& pending) { return belongs(pending.stream, context); });
    forgotten_ = versions_;
}

} // namespace cachealloc::shim
