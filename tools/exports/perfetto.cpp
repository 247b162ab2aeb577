// Counters of devices and streams, and what happened to segments, over time.
#include "tools/exports/chrome_trace.h"
#include "tools/exports/counter_track.h"
#include "tools/exports/exporter.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

namespace cachealloc::tools {
namespace {

using trace::EventKind;

/// Spans that counters are drawn in: far more than a screen has columns.
constexpr double kSpans = 50'000;

struct DeviceCounter {
    std::string_view name;
    std::uint64_t DeviceBytes::*bytes;
};
constexpr std::array<DeviceCounter, 5> kDeviceCounters = {
    {{"live", &DeviceBytes::live},
     {"live in the pool, rounded", &DeviceBytes::handed},
     {"reserved by the pool", &DeviceBytes::reserved},
     {"freed but unfinished", &DeviceBytes::pending},
     {"pinned host memory", &DeviceBytes::host}}};

bool is_marked(EventKind kind) {
    switch (kind) {
    case EventKind::segment_alloc:
    case EventKind::segment_free:
    case EventKind::segment_map:
    case EventKind::segment_unmap:
    case EventKind::out_of_memory:
    case EventKind::trim:
    case EventKind::mark:
        return true;
    default:
        return false;
    }
}

std::uint64_t span_of(const ExportJob& job) {
    const Clock& clock = job.trace.clock;
    const std::uint64_t first = job.history.first_time();
    const double from = std::max(job.options.from_seconds * 1e9, clock.since_start(first));
    const double to =
        std::min(job.options.to_seconds * 1e9, clock.since_start(job.history.last_time()));
    const double ticks = (to - from) / clock.tick_ns() / kSpans;
    return ticks >= 1 && ticks < 1e18 ? static_cast<std::uint64_t>(ticks) : 1;
}

std::string stream_counter(std::uint8_t device, std::uint64_t stream) {
    std::array<char, 64> name;
    std::snprintf(name.data(), name.size(), "device %u: live of stream 0x%llx", unsigned{device},
                  static_cast<unsigned long long>(stream));
    return name.data();
}

/// One counter, of which changes alone are written, and nothing before the window.
class Counter {
  public:
    Counter(ChromeTrace& out, std::uint64_t span, std::string_view name)
        : front_(out.counter_front(name)),
          track_(span, [this, &out](std::uint64_t time, std::uint64_t value) {
              out.counter(front_, time, value);
          }) {}
    Counter(const Counter&) = delete;
    Counter& operator=(const Counter&) = delete;
    ~Counter() = default;

    [[nodiscard]] std::uint64_t value() const { return value_; }
    void set(std::uint64_t time, std::uint64_t value, bool shown) {
        if (shown && (value != value_ || !begun_)) {
            track_.add(time, value);
            begun_ = true;
        }
        value_ = value;
    }
    void flush() { track_.flush(); }

  private:
    std::string front_;
    CounterTrack track_;
    std::uint64_t value_ = 0;
    bool begun_ = false;
};

class PerfettoVisitor : public HistoryVisitor {
  public:
    explicit PerfettoVisitor(ExportJob& job)
        : job_(job), out_(job.output, job.trace), span_(span_of(job)) {}

    void on_start(const State& state) override {
        state.live().for_each(
            [this](const Place&, const Block& block) { change_stream(block, block.size, 0); });
    }

    void on_event(const Event& event, const State& state, const Block* ended) override {
        if (done_ || job_.window.behind(event.time)) {
            done_ = true;
            return;
        }
        shown_ = !job_.window.before(event.time);
        last_time_ = event.time;
        const std::uint8_t device = ended != nullptr ? ended->device : event.device;
        if (!job_.window.has_device(device)) {
            return;
        }
        count_device(state, device, event.time);
        if (event.kind == EventKind::alloc) {
            change_stream(block_of(event), event.size, event.time);
        } else if (event.kind == EventKind::free && ended != nullptr) {
            change_stream(*ended, ~ended->size + 1, event.time);
        }
        if (shown_ && is_marked(event.kind)) {
            out_.mark(event);
        }
    }

    /// What events missed is known now.
    void on_end(const State& state) override {
        std::map<std::pair<std::uint8_t, std::uint64_t>, std::uint64_t> live;
        state.live().for_each([&](const Place&, const Block& block) {
            if (trace::on_device(block.memory)) {
                live[{block.device, block.stream}] += block.size;
            }
        });
        for (auto& [key, counter] : streams_) {
            counter.set(last_time_, live[key], shown_);
        }
        for (const std::uint8_t device : export_devices(job_)) {
            count_device(state, device, last_time_);
        }
    }

    [[nodiscard]] bool done() const override { return done_; }

    void finish() {
        for (auto& [key, counter] : counters_) {
            counter.flush();
        }
        for (auto& [key, counter] : streams_) {
            counter.flush();
        }
        out_.finish();
    }

  private:
    void count_device(const State& state, std::uint8_t device, std::uint64_t time) {
        const DeviceBytes& bytes = state.device(device);
        for (std::size_t which = 0; which < kDeviceCounters.size(); ++which) {
            const std::uint64_t value = bytes.*kDeviceCounters[which].bytes;
            Counter*& counter = devices_[device % trace::kDevices][which];
            if (counter == nullptr && value == 0) {
                continue; // what never happens has no counter
            }
            if (counter == nullptr) {
                std::string name = "device " + std::to_string(device);
                name += ": ";
                name += kDeviceCounters[which].name;
                counter = &counters_.try_emplace({device, which}, out_, span_, name).first->second;
            }
            counter->set(time, value, shown_);
        }
    }

    /// `change` is added; modulo 2^64 it may take away.
    void change_stream(const Block& block, std::uint64_t change, std::uint64_t time) {
        if (!trace::on_device(block.memory) || !job_.window.has_device(block.device)) {
            return;
        }
        const std::pair<std::uint8_t, std::uint64_t> key(block.device, block.stream);
        auto found = streams_.find(key);
        if (found == streams_.end()) {
            found =
                streams_.try_emplace(key, out_, span_, stream_counter(block.device, block.stream))
                    .first;
        }
        found->second.set(time, found->second.value() + change, shown_);
    }

    ExportJob& job_;
    ChromeTrace out_;
    const std::uint64_t span_; ///< ticks
    std::map<std::pair<std::uint8_t, std::size_t>, Counter> counters_;
    std::array<std::array<Counter*, kDeviceCounters.size()>, trace::kDevices> devices_{};
    std::map<std::pair<std::uint8_t, std::uint64_t>, Counter> streams_;
    std::uint64_t last_time_ = 0; ///< ticks
    bool shown_ = false;
    bool done_ = false;
};

} // namespace

void export_perfetto(ExportJob& job) {
    PerfettoVisitor visitor(job);
    job.history.visit(visitor);
    visitor.finish();
}

} // namespace cachealloc::tools
