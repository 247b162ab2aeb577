#include "tests/simcuda/runtime/state.h"

#include <map>
#include <mutex>

namespace simcuda::runtime {
namespace {

// The oldest driver with every entry the runtime cannot do without. The real 13.0 runtime wants a
// 13.0 driver; this one also stands in for the 12.x runtimes that run on older drivers.
constexpr int kOldestDriver = 12000;

/// The primary contexts the runtime holds. Invariant: a context is in `held` exactly while the
/// runtime owns one retain of it.
struct Primaries {
    std::mutex mutex;
    std::map<int, CUcontext> held;
    std::map<CUcontext, int> known; ///< Every primary context ever seen, with its device.
};

Primaries& primaries() {
    static auto* instance = new Primaries; // Never freed: used by exit handlers.
    return *instance;
}

Result initialise() {
    const DriverLibrary& library = driver_library();
    int version = 0;
    library.legacy.cuDriverGetVersion(&version);
    if (version < kOldestDriver) {
        return cudaErrorInsufficientDriver;
    }
    return library.cuInit(0);
}

Result make_current(const Driver& driver) {
    CUcontext current = nullptr;
    Result result = driver.cuCtxGetCurrent(&current);
    if (!result.ok()) {
        return result;
    }
    int device = thread_state().device;
    if (current) {
        Primaries& all = primaries();
        std::lock_guard lock(all.mutex);
        auto found = all.known.find(current);
        if (found == all.known.end()) {
            return cudaSuccess; // The program's own context.
        }
        if (all.held.count(found->second) != 0) {
            return cudaSuccess;
        }
        device = found->second; // A primary context that cudaDeviceReset has destroyed.
    }
    result = primary_context(device, current);
    return result.ok() ? Result(driver.cuCtxSetCurrent(current)) : result;
}

} // namespace

ThreadState& thread_state() {
    thread_local ThreadState state;
    return state;
}

Result prepare(Needs needs) {
    if (needs == Needs::nothing) {
        return cudaSuccess;
    }
    const DriverLibrary& library = driver_library();
    if (library.status != CUDA_SUCCESS) {
        return cudaErrorInsufficientDriver;
    }
    if (needs == Needs::driver) {
        return cudaSuccess;
    }
    static const Result initialised = initialise();
    if (!initialised.ok() || needs == Needs::init) {
        return initialised;
    }
    return make_current(library.legacy);
}

Result primary_context(int device, CUcontext& context) {
    const Driver& driver = driver_library().legacy;
    Primaries& all = primaries();
    std::lock_guard lock(all.mutex);
    auto found = all.held.find(device);
    if (found != all.held.end()) {
        context = found->second;
        return cudaSuccess;
    }
    CUdevice handle = 0;
    Result result = driver.cuDeviceGet(&handle, device);
    if (!result.ok()) {
        return result;
    }
    result = driver.cuDevicePrimaryCtxRetain(&context, handle);
    if (result.ok()) {
        all.held[device] = context;
        all.known[context] = device;
    }
    return result;
}

Result reset_primary(const Driver& driver) {
    int device = 0;
    Result result = current_device(driver, device);
    if (!result.ok()) {
        return result;
    }
    Primaries& all = primaries();
    std::lock_guard lock(all.mutex);
    CUdevice handle = 0;
    result = driver.cuDeviceGet(&handle, device);
    if (result.ok()) {
        result = driver.cuDevicePrimaryCtxReset(handle);
    }
    auto found = all.held.find(device);
    if (!result.ok() || found == all.held.end()) {
        return result;
    }
    // Resetting does not give back the retain.
    driver.cuDevicePrimaryCtxRelease(handle);
    all.held.erase(found);
    return driver.cuCtxSetCurrent(nullptr);
}

Result current_device(const Driver& driver, int& device) {
    CUcontext current = nullptr;
    driver.cuCtxGetCurrent(&current);
    if (!current) {
        device = thread_state().device;
        return cudaSuccess;
    }
    Primaries& all = primaries();
    {
        std::lock_guard lock(all.mutex);
        auto found = all.known.find(current);
        if (found != all.known.end()) {
            device = found->second;
            return cudaSuccess;
        }
    }
    CUdevice handle = 0;
    Result result = driver.cuCtxGetDevice(&handle);
    device = handle; // Ordinals and handles are the same numbers.
    return result;
}

cudaError_t remember(Result result) {
    if (!result.ok()) {
        thread_state().last_error = result.code();
    }
    return result.code();
}

} // namespace simcuda::runtime
