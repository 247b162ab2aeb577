#include "shim/peer_access.h"

#include <algorithm>

namespace cachealloc::shim {

void PeerAccess::enabled(CUcontext from, CUdevice device, CUcontext to) {
    const std::lock_guard lock(mutex_);
    accesses_.push_back({from, device, to});
}

bool PeerAccess::disabled(CUcontext from, CUdevice device, CUcontext to) {
    const std::lock_guard lock(mutex_);
    std::erase_if(accesses_, [&](const Access& one) { return one.from == from && one.to == to; });
    return std::none_of(accesses_.begin(), accesses_.end(),
                        [&](const Access& one) { return one.device == device && one.to == to; });
}

void PeerAccess::ended(CUcontext context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(accesses_,
                  [&](const Access& one) { return one.from == context || one.to == context; });
}

std::size_t PeerAccess::reaching(CUcontext to, CUdevice* devices, std::size_t most) {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const Access& one : accesses_) {
        if (one.to != to || count == most) continue;
        if (std::find(devices, devices + count, one.device) == devices + count)
            devices[count++] = one.device;
    }
    return count;
}

} // namespace cachealloc::shim
