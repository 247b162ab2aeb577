#pragma once

#include "core/order/fences.h"
#include "core/order/stream_events.h"
#include "core/order/stream_order.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace cachealloc::tools {

/// A context's queues as a recording shows them. A fence has finished once the recording says that
/// the memory of a release at or after it was fit for reuse, or once the host waited for it; a
/// stream's own event, once the memory of its very release was: that stream gets it unfinished, so
/// it tells nothing of others.
///
/// Invariant: what an event stands for is a number of releases. All up to finished_ have finished,
/// and nothing ever becomes unfinished.
///
/// Not thread-safe.
class SimulatedOrder final : public StreamOrder {
  public:
    explicit SimulatedOrder(bool several_streams) : several_streams_(several_streams) {}

    /// The next release begins; gives its number.
    std::uint64_t release() { return ++releases_; }
    /// The memory of release `number` is fit for reuse; so has everything before it finished,
    /// unless it was `by_stream`.
    void complete(std::uint64_t number, bool by_stream) {
        if (by_stream) {
            completed_.resize(std::max(completed_.size(), number + 1));
            completed_[number] = true;
        } else {
            finished_ = std::max(finished_, number);
        }
    }

    OrderResult record(std::uint32_t event) override {
        stands_for_[event] = releases_;
        return {};
    }
    OrderResult query(std::uint32_t event) override {
        asked_ = stands_for_[event];
        const bool done = asked_ <= finished_ || (event >= Fences::kEvents && asked_ != 0 &&
                                                  asked_ < completed_.size() && completed_[asked_]);
        return {done ? OrderStatus::done : OrderStatus::pending, 0};
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
    std::vector<bool> completed_; ///< releases by a stream
    std::array<std::uint64_t, Fences::kEvents + StreamEvents::kEvents> stands_for_{};
};

} // namespace cachealloc::tools
