#include "core/order/fences.h"

namespace cachealloc {

namespace {

template <class T>
void raise_to(std::atomic<T>& value, T to) {
    T seen = value.load(std::memory_order_relaxed);
    while (seen < to && !value.compare_exchange_weak(seen, to, std::memory_order_seq_cst)) {
    }
}

/// What is wrong with numbering when a test switches the rule off.
std::uint64_t one_stamp_too_many() {
    return rule_on(Rule::numbering) ? 0 : 1;
}

} // namespace

void Fences::lower(OrderLevel level) {
    raise_to(level_, level);
}

OrderResult Fences::note(OrderResult result) {
    if (result.status == OrderStatus::lost) {
        int none = 0;
        lost_.compare_exchange_strong(none, result.native, std::memory_order_acq_rel);
    }
    return result;
}

/// May `number` record into its slot? The former number must have been recorded (its thread may
/// have been preempted just before) and have finished, or its record must have failed.
bool Fences::slot_is_free(std::uint64_t number) const {
    if (number <= kEvents + kFirstNumber - 1) return true;
    const std::uint64_t former = number - kEvents;
    const std::uint64_t held =
        slots_[number % kEvents].number_and_ok.load(std::memory_order_acquire);
    if (held >> 1 != former) return false;
    return (held & 1) == 0 || finished(former - 1);
}

/// A thread that must not wait takes a number only if the slot behind it is free by now.
bool Fences::take_number(bool may_wait, std::uint64_t& number) {
    std::uint64_t now = clock_.load(std::memory_order_seq_cst);
    do {
        if (!may_wait && !slot_is_free(now + 1)) return false;
    } while (!clock_.compare_exchange_weak(now, now + 1, std::memory_order_seq_cst));
    number = now + 1;
    return true;
}

/// Where nobody asks for finished fences (one stream, barriers settle everything) the ring runs
/// full; poll() then frees half of it at once. A query that fails leaves the former event unknown:
/// then `number` gets no event, and later fences cover what the former one covered.
OrderResult Fences::await_slot(std::uint64_t number) {
    while (!slot_is_free(number)) {
        if (const int code = lost()) return {OrderStatus::lost, code};
        if (poll()) continue;
        const std::uint64_t former = number - kEvents;
        if (recorded(former) && ask(former) == OrderStatus::failed) {
            return {OrderStatus::failed, 0};
        }
        order_.pause();
    }
    return {};
}

OrderResult Fences::fence(bool may_wait) {
    if (const int code = lost()) return {OrderStatus::lost, code};
    std::uint64_t number = 0;
    if (!take_number(may_wait, number)) return {OrderStatus::refused, 0};
    OrderResult result = await_slot(number);
    if (result.done()) result = note(order_.record(event_of(number)));
    slot(number).number_and_ok.store(number << 1 | (result.done() ? 1U : 0U),
                                     std::memory_order_release);
    if (result.done() && may_wait) raise_to(youngest_waiting_, number);
    return result;
}

/// Between the check that the slot still holds `number` and the query another thread may record a
/// later number into it; it does so only after `number` finished, so "done" stays true and
/// "pending" is merely late.
OrderStatus Fences::ask(std::uint64_t number) {
    if (!recorded(number)) return OrderStatus::pending;
    const OrderResult result = note(order_.query(event_of(number)));
    if (result.done()) raise_to(finished_, number + one_stamp_too_many());
    return result.status;
}

/// The oldest first: while the device is busy it mostly has not finished, and then none has. The
/// middle one besides, so that many finished ones take few polls, and past an event that cannot be
/// asked.
bool Fences::poll() {
    const std::uint64_t done = finished_.load(std::memory_order_acquire);
    const std::uint64_t now = clock_.load(std::memory_order_acquire);
    if (done >= now || lost() != 0) return false;
    const std::uint64_t oldest = first_recorded_above(done);
    if (oldest == 0) return false;
    const OrderStatus status = ask(oldest);
    if (status == OrderStatus::pending) return false;
    const std::uint64_t middle = done + (now - done + 1) / 2;
    if (middle > oldest && ask(middle) == OrderStatus::done) return true;
    return status == OrderStatus::done;
}

/// The oldest fence that covers `stamp`: waiting for a younger one would hold up more than needed.
std::uint64_t Fences::first_recorded_above(Stamp stamp) const {
    const std::uint64_t now = clock_.load(std::memory_order_acquire);
    for (std::uint64_t number = stamp + 1; number <= now; ++number) {
        if (recorded(number)) return number;
    }
    return 0;
}

OrderResult Fences::wait_for(std::uint64_t number) {
    if (!rule_on(Rule::barrier)) {
        raise_to(waited_, number);
        return {};
    }
    const OrderResult result = note(order_.wait_on_device(event_of(number)));
    if (result.done()) raise_to(waited_, number + one_stamp_too_many());
    return result;
}

OrderResult Fences::barrier(Stamp stamp) {
    if (settled(stamp, true)) return {};
    const std::uint64_t number = first_recorded_above(stamp);
    if (number != 0) return wait_for(number);
    return {settled(stamp, true) ? OrderStatus::done : OrderStatus::refused, 0};
}

OrderResult Fences::stream_wait(Stamp stamp, StreamHandle stream) {
    if (settled(stamp, true) || !rule_on(Rule::stream_event)) return {};
    const std::uint64_t number = first_recorded_above(stamp);
    if (number != 0) return note(order_.wait_on_stream(stream, event_of(number)));
    return {settled(stamp, true) ? OrderStatus::done : OrderStatus::refused, 0};
}

OrderResult Fences::barrier_behind_all() {
    const std::uint64_t number = youngest_waiting_.load(std::memory_order_acquire);
    if (number == 0 || finished(number - 1)) return {};
    if (recorded(number)) return wait_for(number);
    return {finished(number - 1) ? OrderStatus::done : OrderStatus::refused, 0};
}

OrderResult Fences::host_wait(Stamp stamp) {
    while (!finished(stamp)) {
        if (const int code = lost()) return {OrderStatus::lost, code};
        const std::uint64_t number = first_recorded_above(stamp);
        if (number != 0) {
            const OrderStatus status = ask(number);
            if (status == OrderStatus::done) continue;
            if (status == OrderStatus::failed) return {OrderStatus::failed, 0};
        }
        order_.pause();
    }
    return {};
}

/// With events a fence and a host wait do: unlike a native wait they harm no capture that begins
/// meanwhile.
OrderResult Fences::synchronize() {
    if (level() != OrderLevel::wait) {
        const Stamp now = stamp();
        const OrderResult result = fence(true);
        return result.done() ? host_wait(now) : result;
    }
    const std::uint64_t number = clock_.fetch_add(1, std::memory_order_seq_cst) + 1;
    const OrderResult result = note(order_.synchronize());
    slot(number).number_and_ok.store(number << 1, std::memory_order_release);
    if (result.done()) raise_to(finished_, number);
    return result;
}

} // namespace cachealloc
