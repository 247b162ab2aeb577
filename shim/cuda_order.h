// StreamOrder over context events (cuCtxRecordEvent, cuCtxWaitEvent; driver 12.5 and later).
//
// Invariant: nothing here touches a context event while a capture is open (that would invalidate
// the capture): record and wait pass the process's capture gate or are refused. Queries beside an
// open capture run in the relaxed capture mode, which leaves captures alone (measured on an H200).
#pragma once

#include "core/order/fences.h"
#include "shim/cuda_types.h"

#include <array>
#include <atomic>

namespace cachealloc::shim {

struct Process;
struct ContextPool;

class CudaOrder final : public StreamOrder {
  public:
    // Both outlive the order.
    CudaOrder(Process& process, ContextPool& owner) : process_(process), owner_(owner) {}

    OrderResult record(std::uint32_t event) override;
    OrderResult query(std::uint32_t event) override;
    OrderResult wait_on_device(std::uint32_t event) override;
    OrderResult synchronize() override;
    void pause() override;
    bool several_streams() const override;

    // Whether the driver really has context events for this context, which must be current (some
    // virtual devices lack them).
    bool works();

  private:
    CUevent event(std::uint32_t index);

    Process& process_;
    ContextPool& owner_;
    std::array<std::atomic<CUevent>, Fences::kEvents> events_{};
};

} // namespace cachealloc::shim
