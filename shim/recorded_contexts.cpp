#include "shim/recorded_contexts.h"

#include "core/record/recorder.h"
#include "shim/driver.h"
#include "shim/process.h"

#include <algorithm>

namespace cachealloc::shim {

namespace {

struct Current {
    CUcontext handle;
    std::uint64_t generation;
    RecordedContext context;
};
thread_local constinit Current t_current{};

} // namespace

RecordedContext RecordedContexts::current() {
    CUcontext handle = nullptr;
    if (real.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == nullptr) return {};
    const std::uint64_t generation = generation_.load(std::memory_order_acquire);
    if (t_current.handle != handle || t_current.generation != generation) {
        t_current = {handle, generation, of(process_.contexts.pool_owner(handle))};
    }
    return t_current.context;
}

RecordedContext RecordedContexts::of(CUcontext context) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(known_.begin(), known_.end(),
                                    [&](const Known& known) { return known.handle == context; });
    if (found != known_.end()) return found->context;
    CUdevice device = 0;
    if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS) return {};
    meet_device(device);
    RecordedContext made;
    made.device = static_cast<std::uint8_t>(device);
    if (next_ != RecordedContext::kNone) made.number = next_++;
    known_.push_back({context, made});
    return made;
}

RecordedContext RecordedContexts::ended(CUcontext context) {
    const std::lock_guard lock(mutex_);
    generation_.fetch_add(1, std::memory_order_acq_rel);
    const auto found = std::find_if(known_.begin(), known_.end(),
                                    [&](const Known& known) { return known.handle == context; });
    if (found == known_.end()) return {};
    const RecordedContext gone = found->context;
    known_.erase(found);
    return gone;
}

void RecordedContexts::meet_device(CUdevice device) {
    if (device < 0 || device >= static_cast<CUdevice>(trace::kDevices) ||
        (devices_met_ >> device & 1) != 0) {
        return;
    }
    devices_met_ |= std::uint64_t{1} << device;
    std::size_t total = 0;
    char name[256] = "";
    real.cuDeviceTotalMem_v2(&total, device);
    if (real.cuDeviceGetName) real.cuDeviceGetName(name, sizeof name, device);
    name[sizeof name - 1] = '\0';
    process_.recording.describe_driver();
    process_.recording.recorder()->set_device(static_cast<std::uint32_t>(device), name, total);
}

} // namespace cachealloc::shim
