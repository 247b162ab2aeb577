// Which contexts may reach whose memory: cuMemAlloc memory of a context becomes reachable at once,
// past and future, when peer access to it is enabled; mapped memory only by our own doing.
//
// Thread-safe; none throws except for want of memory.
#pragma once

#include "shim/cuda_types.h"

#include <cstddef>
#include <mutex>
#include <vector>

namespace cachealloc::shim {

class PeerAccess {
  public:
    // Work of `from`, on `device`, may reach memory of `to` from now on, or no longer. disabled()
    // returns whether no other context of the device may either.
    void enabled(CUcontext from, CUdevice device, CUcontext to);
    bool disabled(CUcontext from, CUdevice device, CUcontext to);

    // A context is gone, and with it what it reached and who reached it.
    void ended(CUcontext context);

    // Devices from which memory of `to` is reached, each once: at most `most` of them, into
    // `devices`. Returns how many.
    std::size_t reaching(CUcontext to, CUdevice* devices, std::size_t most);

  private:
    struct Access {
        CUcontext from;
        CUdevice device;
        CUcontext to;
    };

    std::mutex mutex_;
    std::vector<Access> accesses_;
};

} // namespace cachealloc::shim
