// Devices: choosing, asking, limits, peers, reset, and the way to the driver's entry points.
#include "tests/simcuda/runtime/state.h"

RUNTIME_API(init, cudaGetDeviceCount, (int* count), {
    return count ? Result(driver.cuDeviceGetCount(count)) : Result(cudaErrorInvalidValue);
})

RUNTIME_API(init, cudaGetDevice, (int* device),
            { return device ? current_device(driver, *device) : Result(cudaErrorInvalidValue); })

RUNTIME_API(init, cudaSetDevice, (int device), {
    int count = 0;
    Result result = driver.cuDeviceGetCount(&count);
    if (!result.ok()) {
        return result;
    }
    if (device < 0 || device >= count) {
        return cudaErrorInvalidDevice;
    }
    // Since CUDA 12 the primary context is made here, not at the next call.
    CUcontext context = nullptr;
    result = primary_context(device, context);
    if (!result.ok()) {
        return result;
    }
    thread_state().device = device;
    return driver.cuCtxSetCurrent(context);
})

RUNTIME_API(init, cudaInitDevice, (int device, unsigned, unsigned), {
    CUcontext context = nullptr;
    return primary_context(device, context);
})

RUNTIME_API(init, cudaSetDeviceFlags, (unsigned flags), {
    int device = 0;
    Result result = current_device(driver, device);
    return result.ok() ? Result(driver.cuDevicePrimaryCtxSetFlags(device, flags)) : result;
})

RUNTIME_API(context, cudaGetDeviceFlags, (unsigned* flags), { return driver.cuCtxGetFlags(flags); })

RUNTIME_API(init, cudaDeviceReset, (), { return reset_primary(driver); })

RUNTIME_API(context, cudaDeviceSynchronize, (), { return driver.cuCtxSynchronize(); })

RUNTIME_API(init, cudaDeviceGetAttribute, (int* value, cudaDeviceAttr attribute, int device), {
    return driver.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device);
})

RUNTIME_API(init, cudaDeviceGetByPCIBusId, (int* device, const char* bus_id),
            { return driver.cuDeviceGetByPCIBusId(device, bus_id); })

RUNTIME_API(init, cudaDeviceGetPCIBusId, (char* bus_id, int length, int device),
            { return driver.cuDeviceGetPCIBusId(bus_id, length, device); })

RUNTIME_API(init, cudaDeviceGetP2PAttribute,
            (int* value, cudaDeviceP2PAttr attribute, int from, int to), {
                return driver.cuDeviceGetP2PAttribute(
                    value, static_cast<CUdevice_P2PAttribute>(attribute), from, to);
            })

RUNTIME_API(init, cudaDeviceCanAccessPeer, (int* can, int device, int peer),
            { return driver.cuDeviceCanAccessPeer(can, device, peer); })

RUNTIME_API(context, cudaDeviceEnablePeerAccess, (int peer, unsigned flags), {
    CUcontext context = nullptr;
    Result result = primary_context(peer, context);
    return result.ok() ? Result(driver.cuCtxEnablePeerAccess(context, flags)) : result;
})

RUNTIME_API(context, cudaDeviceDisablePeerAccess, (int peer), {
    CUcontext context = nullptr;
    Result result = primary_context(peer, context);
    return result.ok() ? Result(driver.cuCtxDisablePeerAccess(context)) : result;
})

RUNTIME_API(context, cudaDeviceGetLimit, (size_t * value, cudaLimit limit),
            { return driver.cuCtxGetLimit(value, static_cast<CUlimit>(limit)); })

RUNTIME_API(context, cudaDeviceSetLimit, (cudaLimit limit, size_t value),
            { return driver.cuCtxSetLimit(static_cast<CUlimit>(limit), value); })

RUNTIME_API(context, cudaDeviceGetStreamPriorityRange, (int* least, int* greatest),
            { return driver.cuCtxGetStreamPriorityRange(least, greatest); })

RUNTIME_API(context, cudaDeviceSetCacheConfig, (cudaFuncCache config),
            { return driver.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(config)); })

RUNTIME_API(init, cudaDeviceGraphMemTrim, (int device),
            { return driver.cuDeviceGraphMemTrim(device); })

RUNTIME_API(driver, cudaDriverGetVersion, (int* version), {
    return version ? Result(driver.cuDriverGetVersion(version)) : Result(cudaErrorInvalidValue);
})

RUNTIME_API(nothing, cudaRuntimeGetVersion, (int* version), {
    if (!version) {
        return cudaErrorInvalidValue;
    }
    *version = CUDART_VERSION;
    return cudaSuccess;
})

RUNTIME_API(context, cudaProfilerStart, (), { return driver.cuProfilerStart(); })

RUNTIME_API(context, cudaProfilerStop, (), { return driver.cuProfilerStop(); })

namespace simcuda::runtime {
namespace {

/// cudaGetDriverEntryPoint*: the caller's question, with the flag its compilation implies.
cudaError_t driver_entry_point(const char* name, void** address, unsigned version,
                               unsigned long long flags, bool per_thread,
                               cudaDriverEntryPointQueryResult* status) {
    if (!name || !address) {
        return remember(cudaErrorInvalidValue);
    }
    Result ready = prepare(Needs::init);
    if (!ready.ok()) {
        return remember(ready);
    }
    if (flags == cudaEnableDefault && per_thread) {
        flags = cudaEnablePerThreadDefaultStream;
    }
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    Result result =
        driver_library().get_proc_address(name, address, static_cast<int>(version), flags, &found);
    if (status) {
        *status = static_cast<cudaDriverEntryPointQueryResult>(found);
        if (found != CU_GET_PROC_ADDRESS_SUCCESS) {
            *address = nullptr; // The answer is in the status; the call itself has succeeded.
            return cudaSuccess;
        }
    }
    return remember(result);
}

} // namespace
} // namespace simcuda::runtime

extern "C" cudaError_t cudaGetDriverEntryPoint(const char* name, void** address,
                                               unsigned long long flags,
                                               cudaDriverEntryPointQueryResult* status) {
    return simcuda::runtime::driver_entry_point(name, address, CUDART_VERSION, flags, false,
                                                status);
}

extern "C" cudaError_t cudaGetDriverEntryPoint_ptsz(const char* name, void** address,
                                                    unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* status) {
    return simcuda::runtime::driver_entry_point(name, address, CUDART_VERSION, flags, true, status);
}

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** address,
                                                        unsigned version, unsigned long long flags,
                                                        cudaDriverEntryPointQueryResult* status) {
    return simcuda::runtime::driver_entry_point(name, address, version, flags, false, status);
}

extern "C" cudaError_t
cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** address, unsigned version,
                                      unsigned long long flags,
                                      cudaDriverEntryPointQueryResult* status) {
    return simcuda::runtime::driver_entry_point(name, address, version, flags, true, status);
}
