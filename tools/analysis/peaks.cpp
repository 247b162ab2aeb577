#include "tools/analysis/peaks.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cachealloc::tools {

namespace {

/// What the recorder keeps back a thread before it adds to the device's counters.
constexpr std::uint64_t kBatchBytes = 64 << 10;

void raise_one(Moment& peak, std::uint64_t bytes, const Event& event) {
    if (bytes > peak.bytes) peak = {event.time, event.sequence, bytes};
}

} // namespace

void Peaks::raise(DevicePeaks& peaks, const DeviceBytes& bytes, const Event& event) {
    raise_one(peaks.live, bytes.live, event);
    if (bytes.reserved > peaks.reserved.bytes ||
        (bytes.reserved == peaks.reserved.bytes && bytes.pooled > peaks.pooled)) {
        peaks.reserved = {event.time, event.sequence, bytes.reserved};
        peaks.pooled = bytes.pooled;
    }
    raise_one(peaks.host, bytes.host, event);
}

void Peaks::on_start(const State& state) {
    const Event before_all;
    for (std::size_t ordinal = 0; ordinal < devices_.size(); ++ordinal) {
        const DeviceBytes& bytes = state.device(static_cast<std::uint8_t>(ordinal));
        raise(devices_[ordinal], bytes, before_all);
        devices_[ordinal].used = bytes.live != 0 || bytes.reserved != 0 || bytes.host != 0;
    }
}

void Peaks::on_event(const Event& event, const State& state, const Block* ended) {
    (void)ended;
    DevicePeaks& peaks = devices_[event.device % trace::kDevices];
    peaks.used = true;
    raise(peaks, state.device(event.device), event);
}

void Peaks::compare(const History& history) {
    for (std::size_t ordinal = 0; ordinal < devices_.size(); ++ordinal) {
        DevicePeaks& peaks = devices_[ordinal];
        for (Moment* const peak : {&peaks.live, &peaks.reserved, &peaks.host}) {
            if (peak->sequence == 0) peak->time = history.first_time();
        }
        const Device* const counted =
            history.trace().devices.find(static_cast<std::uint32_t>(ordinal));
        if (counted == nullptr || history.whole()) continue;
        peaks.used = true;
        const std::uint64_t slack = kBatchBytes * (1 + history.trace().threads.all().size());
        const auto earlier = [&](std::uint64_t largest, std::uint64_t time, const Moment& found) {
            return largest > found.bytes + slack && time < history.complete_since();
        };
        peaks.live_before_window = earlier(counted->live_peak, counted->live_peak_time, peaks.live);
        peaks.reserved_before_window =
            earlier(counted->reserved_peak, counted->reserved_peak_time, peaks.reserved);
    }
}

void Snapshots::add(const Moment& moment, Take take) {
    const auto place = std::ranges::upper_bound(
        wanted_, std::tie(moment.time, moment.sequence), {},
        [](const Wanted& wanted) { return std::tie(wanted.moment.time, wanted.moment.sequence); });
    wanted_.insert(place, {moment, std::move(take)});
}

void Snapshots::on_start(const State& state) {
    while (!done() && wanted_[next_].moment.sequence == 0)
        wanted_[next_++].take(state);
}

void Snapshots::on_event(const Event& event, const State& state, const Block* ended) {
    (void)ended;
    // The exact event, or the next one if a running process has overwritten it.
    const auto reached = [&](const Moment& moment) {
        return event.time > moment.time ||
               (event.time == moment.time && event.sequence == moment.sequence);
    };
    while (!done() && reached(wanted_[next_].moment))
        wanted_[next_++].take(state);
}

} // namespace cachealloc::tools
