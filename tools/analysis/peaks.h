#pragma once

#include "tools/analysis/history.h"

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace cachealloc::tools {

/// A moment of a history: right after an event.
struct Moment {
    std::uint64_t time = 0;
    std::uint64_t sequence = 0; ///< of the event; 0: before the first event
    std::uint64_t bytes = 0;    ///< what was largest then
};

/// The largest values of one device that the history shows.
struct DevicePeaks {
    Moment live; ///< DeviceBytes::live
    /// DeviceBytes::reserved; of the moments when so much was reserved, the one when most of it was
    /// live: at the first, what the new segment was made for is not in it yet.
    Moment reserved;
    std::uint64_t pooled = 0; ///< DeviceBytes::pooled then
    Moment host;              ///< DeviceBytes::host
    bool used = false;
    /// The recorder counted a larger peak at a time that the ring has forgotten.
    bool live_before_window = false;
    bool reserved_before_window = false;
};

/// Finds when most memory was live and reserved on each device. The first of equal moments counts.
class Peaks : public HistoryVisitor {
  public:
    void on_start(const State& state) override;
    void on_event(const Event& event, const State& state, const Block* ended) override;

    /// Compares with what the recorder counted, after the pass.
    void compare(const History& history);
    [[nodiscard]] const DevicePeaks& device(std::uint8_t ordinal) const {
        return devices_[ordinal % trace::kDevices];
    }

  private:
    void raise(DevicePeaks& peaks, const DeviceBytes& bytes, const Event& event);

    std::array<DevicePeaks, trace::kDevices> devices_{};
};

/// Calls back with the state at chosen moments, in one pass that ends after the last of them.
class Snapshots : public HistoryVisitor {
  public:
    using Take = std::function<void(const State&)>;
    /// To be called before the pass.
    void add(const Moment& moment, Take take);

    void on_start(const State& state) override;
    void on_event(const Event& event, const State& state, const Block* ended) override;
    [[nodiscard]] bool done() const override { return next_ == wanted_.size(); }

  private:
    struct Wanted {
        Moment moment;
        Take take;
    };
    std::vector<Wanted> wanted_;
    std::size_t next_ = 0;
};

} // namespace cachealloc::tools
