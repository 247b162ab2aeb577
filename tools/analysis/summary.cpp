#include "tools/analysis/summary.h"

#include <algorithm>

namespace cachealloc::tools {

namespace {

/// The latest request that could not be met.
class FailureFinder : public HistoryVisitor {
  public:
    explicit FailureFinder(int device) : device_(device) {}
    void on_event(const Event& event, const State& state, const Block* ended) override {
        (void)state;
        (void)ended;
        if (event.kind != trace::EventKind::out_of_memory) return;
        if (device_ >= 0 && event.device != device_) return;
        latest_ = event;
        ++count_;
    }
    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] const Event& latest() const { return latest_; }

  private:
    int device_;
    Event latest_;
    std::uint64_t count_ = 0;
};

RunEnd end_of(const Trace& trace) {
    switch (trace.header().state) {
    case trace::RunState::clean_exit:
        return RunEnd::clean;
    case trace::RunState::stopped:
        return RunEnd::stopped;
    default:
        return trace.running() ? RunEnd::running : RunEnd::killed;
    }
}

DeviceSummary begin_device(const History& history, const Peaks& peaks, std::uint8_t ordinal) {
    DeviceSummary device;
    device.ordinal = ordinal;
    device.peaks = peaks.device(ordinal);
    if (const Device* const known = history.trace().devices.find(ordinal)) {
        device.name = known->name;
        device.total = known->total;
    }
    device.at_end = history.end().device(ordinal);
    device.end_holders = holders_of(history.end(), {.device = ordinal});
    return device;
}

} // namespace

Summary summarize(History& history, int device) {
    Summary summary;
    const Trace& trace = history.trace();
    summary.end = end_of(trace);
    const std::uint64_t latest = std::max(trace.header().latest.ticks, history.last_time());
    summary.seconds = std::max(trace.clock.since_start(latest), 0.0) / 1e9;

    Peaks peaks;
    Churn churn(device);
    FailureFinder failures(device);
    MemoryStatsCounter memory_stats;
    std::vector<HistoryVisitor*> visitors{&peaks, &churn, &failures};
    if (history.whole()) visitors.push_back(&memory_stats);
    history.visit(visitors);
    peaks.compare(history);
    summary.churn = churn.classes();
    summary.churn_total = churn.total();
    summary.savings = savings_of(trace.statistics);

    Snapshots snapshots;
    for (std::uint8_t ordinal = 0; ordinal < trace::kDevices; ++ordinal) {
        if (peaks.device(ordinal).used && (device < 0 || ordinal == device))
            summary.devices.push_back(begin_device(history, peaks, ordinal));
    }
    for (DeviceSummary& one : summary.devices)
        one.memory_stats = memory_stats_of(history, memory_stats, one.ordinal);
    for (DeviceSummary& one : summary.devices) {
        snapshots.add(one.peaks.live, [&one](const State& state) {
            one.at_live_peak = state.device(one.ordinal);
            one.peak_holders = holders_of(state, {.device = one.ordinal});
        });
        snapshots.add(one.peaks.reserved, [&one](const State& state) {
            one.at_reserved_peak = state.device(one.ordinal);
            one.fragmentation = fragmentation_of(state, one.ordinal);
        });
    }
    if (failures.count() != 0) {
        OutOfMemory& failure = summary.out_of_memory.emplace();
        failure.event = failures.latest();
        failure.count = failures.count();
        snapshots.add({failure.event.time, failure.event.sequence, 0}, [&](const State& state) {
            failure.bytes = state.device(failure.event.device);
            failure.fragmentation = fragmentation_of(state, failure.event.device);
            failure.holders = holders_of(state, {.device = failure.event.device});
        });
    }
    history.visit(snapshots);
    summary.lacks = lacks_of(history);
    summary.advice = advice_for(summary, history);
    return summary;
}

} // namespace cachealloc::tools
