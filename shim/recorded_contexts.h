// The numbers that contexts go by in a recording.
//
// Invariant: a number is never used again, though handles are, so that what ends with a context is
// told apart from what another one has made since. A converted green context goes by the number of
// its primary one, whose memory its is.
#pragma once

#include "shim/cuda_types.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace cachealloc {
class Recorder;
}

namespace cachealloc::shim {

struct Process;

struct RecordedContext {
    std::uint8_t number = kNone;
    std::uint8_t device = 0;

    static constexpr std::uint8_t kNone = 255; // none, or one beyond those that have a number
};

class RecordedContexts {
  public:
    explicit RecordedContexts(Process& process) : process_(process) {}

    // The calling thread's current context. One driver call (8 ns) and a thread-local comparison,
    // once known; the first time it takes locks and asks the driver about the device.
    RecordedContext current();

    // A context that is current, and its own owner (no converted green one). Takes a lock.
    RecordedContext of(CUcontext context);

    // The context has ended. Returns what it was, kNone if it was never met.
    RecordedContext ended(CUcontext context);

  private:
    struct Known {
        CUcontext handle;
        RecordedContext context;
    };

    void meet_device(CUdevice device);

    Process& process_;
    std::mutex mutex_;
    std::vector<Known> known_;
    std::uint8_t next_ = 0;
    std::uint64_t devices_met_ = 0; // one bit each
    std::atomic<std::uint64_t> generation_{1};
};

} // namespace cachealloc::shim
