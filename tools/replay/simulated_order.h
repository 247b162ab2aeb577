#pragma once

#include "core/order/fences.h"
#include "core/order/stream_events.h"
#include "core/order/stream_order.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace cachealloc::tools {

/// A context's queues as a recording shows them: an event has finished once the recording says that
/// the memory of a release at or after it was fit for reuse, or once the host waited for it.
///
/// Invariant: finished is monotone: what an event stands for is a number of releases, and one
/// number says up to which of them all have finished.
///
/// Not thread-safe.
class SimulatedOrder final : public StreamOrder {
  public:
    explicit SimulatedOrder(bool several_streams) : several_streams_(several_streams) {}

    /// The next release begins; gives its number.
    std::uint64_t release() { return ++releases_; }
    /// Everything before release `number` has finished.
    void complete(std::uint64_t number) { finished_ = std::max(finished_, number); }

    OrderResult record(std::uint32_t event) override {
        stands_for_[event] = releases_;
        return {};
    }
    OrderResult query(std::uint32_t event) override {
        asked_ = stands_for_[event];
        return {asked_ <= finished_ ? OrderStatus::done : OrderStatus::pending, 0};
    }
    OrderResult wait_on_device(std::uint32_t) override { return {}; }
    OrderResult record_on(StreamHandle, std::uint32_t event) override { return record(event); }
    OrderResult wait_on_stream(StreamHandle, std::uint32_t) override { return {}; }
    OrderResult synchronize() override {
        finished_ = releases_;
        return {};
    }
    /// The host waits for what it asked about last.
    void pause() override { finished_ = std::max(finished_, asked_); }
    [[nodiscard]] bool several_streams() const override { return several_streams_; }

  private:
    const bool several_streams_;
    std::uint64_t releases_ = 0;
    std::uint64_t finished_ = 0;
    std::uint64_t asked_ = 0;
    std::array<std::uint64_t, Fences::kEvents + StreamEvents::kEvents> stands_for_{};
};

} // namespace cachealloc::tools
