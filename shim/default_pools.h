// The devices' default memory pools, as far as stream-ordered calls on them are served here.
//
// Invariant: a device whose default pool is not its current one, can be reached from another device
// or has been exported from is the driver's for good: memory of the driver's own pool has
// properties then that ours lacks.
#pragma once

#include "shim/cuda_types.h"

#include <atomic>
#include <mutex>

namespace cachealloc::shim {

struct Process;

class DefaultPool {
  public:
    // The device's, null for one beyond those that are kept track of. Immortal.
    static DefaultPool* of(CUdevice device);
    // Whose handle it is; null for other pools, and for devices that have not been asked about.
    static DefaultPool* of(CUmemoryPool handle);

    // Whether stream-ordered calls of the device may be served from our pool. Asks the driver about
    // the pool at the first call. Thread-safe.
    bool serves();

    // The device is the driver's from now on.
    void leave();

    CUdevice device() const { return device_; }
    CUmemoryPool handle() const { return handle_.load(std::memory_order_acquire); }

    // The program's settings: whether memory may be taken that others have freed, once that has
    // happened, and whether a stream may be made to wait for it.
    bool reuse_finished() const { return reuse_finished_.load(std::memory_order_relaxed); }
    bool reuse_waiting() const { return reuse_waiting_.load(std::memory_order_relaxed); }
    // After the driver has taken a new value of the attribute.
    void note(CUmemPool_attribute attribute, int value);

  private:
    enum class State : unsigned char { unknown, ours, drivers };
    State ask();

    CUdevice device_ = 0;
    std::atomic<State> state_{State::unknown};
    std::atomic<CUmemoryPool> handle_{nullptr};
    std::atomic<bool> reuse_finished_{true};
    std::atomic<bool> reuse_waiting_{true};
    std::mutex mutex_;
};

// What has been served on `device` before it became the driver's must be reachable from `peer`, as
// the program has just been told that it is: peer access from that device's primary context, now or
// as soon as it has one.
CUresult make_reachable(Process& process, CUdevice device, CUdevice peer);
// The primary context of `device` lives.
void primary_context_lives(Process& process, CUdevice device, CUcontext context);
// Whether access from the current context to `peer` exists by make_reachable() alone, so that the
// program, asking for it now, is not told that it had it. True once for each.
bool claim_peer_access(CUcontext peer);

} // namespace cachealloc::shim
