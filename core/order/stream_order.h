#pragma once

#include <cstdint>

namespace cachealloc {

/// What a call of StreamOrder came to.
enum class OrderStatus {
    done,    ///< it took effect; for query(): everything before the event has finished
    pending, ///< query() only: not finished yet
    refused, ///< not possible just now (a stream capture is open); nothing was changed
    failed,  ///< this call failed, the context lives on
    lost,    ///< the context is dead (a fault, a destroyed context): no event of it can be trusted
};

struct OrderResult {
    OrderStatus status = OrderStatus::done;
    int native = 0; ///< the platform's own error code for `failed` and `lost`

    bool done() const { return status == OrderStatus::done; }
};

/// One of the program's streams, by the platform's own handle.
using StreamHandle = std::uint64_t;

/// The few operations on one context's queues from which Fences and StreamEvents build safe reuse.
/// Events are named by an index below Fences::kEvents + StreamEvents::kEvents; the implementation
/// makes them at first use and keeps them.
///
/// Thread-safe: every function may be called by any thread at any time, also for the same event.
/// None may throw. Only synchronize() may wait for the device.
class StreamOrder {
  public:
    virtual ~StreamOrder() = default;

    /// Lets event `event` stand for all work submitted to the context so far, on every stream and
    /// by every thread. Returns done, refused, failed or lost.
    virtual OrderResult record(std::uint32_t event) = 0;

    /// Asks whether what `event` stands for has finished. Returns done, pending, failed or lost.
    virtual OrderResult query(std::uint32_t event) = 0;

    /// Makes all work submitted to the context from now on wait for `event`, on the device; the
    /// host goes on at once. Returns done, refused, failed or lost.
    virtual OrderResult wait_on_device(std::uint32_t event) = 0;

    /// Lets `event` stand for all work submitted to one stream of the context so far. Returns done,
    /// refused (also where no event can be had), failed or lost.
    virtual OrderResult record_on(StreamHandle /*stream*/, std::uint32_t /*event*/) {
        return {OrderStatus::refused, 0};
    }

    /// Makes the work submitted to one stream from now on wait for `event`, on the device. Returns
    /// done, refused, failed or lost.
    virtual OrderResult wait_on_stream(StreamHandle /*stream*/, std::uint32_t /*event*/) {
        return {OrderStatus::refused, 0};
    }

    /// Waits on the host for all work submitted to the context. Called only at level `wait`, where
    /// there are no events. Returns done, refused, failed or lost.
    virtual OrderResult synchronize() = 0;

    /// Called between two polls of a host wait: lets other threads (or simulated time) run.
    virtual void pause() = 0;

    /// A hint, never a matter of correctness: has the program used more than one stream lately?
    virtual bool several_streams() const = 0;
};

} // namespace cachealloc
