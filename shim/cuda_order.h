// StreamOrder over context events (cuCtxRecordEvent, cuCtxWaitEvent; driver 12.5 and later).
//
// Invariant: nothing here touches a context event, or records or waits on a stream, while a capture
// is open (that would invalidate the capture): these pass the process's capture gate or are
// refused. Queries beside an open capture run in the relaxed capture mode, which leaves captures
// alone (measured on an H200).
#pragma once

#include "core/order/stream_events.h"
#include "shim/cuda_types.h"

#include <array>
#include <atomic>
#include <mutex>

namespace cachealloc::shim {

struct Process;
struct ContextPool;

// What a driver's code means to order: any error that is not known to be harmless is a fault, which
// stays with the context.
OrderResult translate(CUresult result);

class CudaOrder final : public StreamOrder {
  public:
    // Both outlive the order.
    CudaOrder(Process& process, ContextPool& owner) : process_(process), owner_(owner) {}

    ContextPool& owner() const { return owner_; }

    OrderResult record(std::uint32_t event) override;
    OrderResult query(std::uint32_t event) override;
    OrderResult wait_on_device(std::uint32_t event) override;
    OrderResult record_on(StreamHandle stream, std::uint32_t event) override;
    OrderResult wait_on_stream(StreamHandle stream, std::uint32_t event) override;
    OrderResult synchronize() override;
    void pause() override;
    bool several_streams() const override;

    // The device of the context.
    CUdevice device() const;

    // Whether the driver really has context events for this context, which must be current (some
    // virtual devices lack them).
    bool works();

    // Makes the events of the next kAhead fences, so that their frees need not: where time is spent
    // anyway, as in the driver's own allocation (33 us and more; an event takes 0.3 to 0.5 us).
    void make_events_ahead();
    static constexpr std::uint32_t kAhead = 64;

    // An event over all work of the context so far, recorded once and for good; the caller owns it.
    // Null if none can be had.
    CUevent record_once();

    // Makes sure that a fence recorded from now on also covers what has been submitted to `stream`,
    // which may belong to another context. False if that cannot be had.
    bool covers(CUstream stream);

  private:
    CUresult event(std::uint32_t index, CUevent& made);

    Process& process_;
    ContextPool& owner_;
    std::array<std::atomic<CUevent>, Fences::kEvents + StreamEvents::kEvents> events_{};
    std::mutex bridge_mutex_;
    CUstream bridge_ = nullptr; // in this context; waits for streams of others, holds up nothing
};

} // namespace cachealloc::shim
