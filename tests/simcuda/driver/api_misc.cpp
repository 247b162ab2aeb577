// Small answers that runtimes ask for and no test depends on.
#include <cstdio>

#include "guard.h"

using namespace simcuda;

namespace {

bool device_exists(CUdevice dev) {
    return dev >= 0 && static_cast<std::size_t>(dev) < World::get().devices.size();
}

} // namespace

SIM_EXPORT CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice a,
                                            CUdevice b) {
    SIM_ENTER(cuDeviceGetP2PAttribute);
    if (value == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!device_exists(a) || !device_exists(b) || a == b) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *value = 1;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
    SIM_ENTER(cuCtxGetLimit);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : std::size_t{8} << 20;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) {
    SIM_ENTER(cuCtxSetLimit);
    ContextPtr ctx;
    return current_context(&ctx);
}
SIM_EXPORT CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
    SIM_ENTER(cuCtxGetCacheConfig);
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache) {
    SIM_ENTER(cuCtxSetCacheConfig);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
    SIM_ENTER(cuFuncSetCacheConfig);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
    SIM_ENTER(cuFuncGetAttribute);
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
             : attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION ||
                     attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION
                 ? 90
                 : 0;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int,
                                                                size_t) {
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    *blocks = 2;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction,
                                                                         int, size_t,
                                                                         unsigned int) {
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    *blocks = 2;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    SIM_ENTER(cuModuleGetLoadingMode);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuProfilerStart() {
    SIM_ENTER(cuProfilerStart);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuProfilerStop() {
    SIM_ENTER(cuProfilerStop);
    return CUDA_SUCCESS;
}

// Graphs keep no memory of their own here.
SIM_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice dev) {
    SIM_ENTER(cuDeviceGraphMemTrim);
    return device_exists(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
SIM_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute, void* value) {
    SIM_ENTER(cuDeviceGetGraphMemAttribute);
    if (value == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *static_cast<cuuint64_t*>(value) = 0;
    return device_exists(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
SIM_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute, void*) {
    SIM_ENTER(cuDeviceSetGraphMemAttribute);
    return device_exists(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* id) {
    SIM_ENTER_STATE(cuDeviceGetByPCIBusId);
    unsigned domain = 0;
    unsigned bus = 0;
    if (dev == nullptr || id == nullptr || std::sscanf(id, "%x:%x", &domain, &bus) != 2) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!device_exists(static_cast<CUdevice>(bus))) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = static_cast<CUdevice>(bus);
    return CUDA_SUCCESS;
}

static CUresult attach(bool pt, CUstream stream, CUdeviceptr p) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    const auto a = World::get().map.at(p);
    if (a == nullptr || a->kind != Memory::managed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Work work;
    work.label = "cuStreamAttachMemAsync";
    return submit(s, std::move(work));
}
SIM_TWINS(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz, attach,
          (CUstream s, CUdeviceptr p, size_t, unsigned int), s, p)
