// Device and host memory: allocation, freeing, attributes.
#include "tests/simcuda/runtime/pointers.h"
#include "tests/simcuda/runtime/state.h"

RUNTIME_API(context, cudaMalloc, (void** out, size_t bytes), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    *out = nullptr;
    if (bytes == 0) {
        return cudaSuccess; // The driver would refuse: the runtime never asks it.
    }
    CUdeviceptr address = 0;
    Result result = driver.cuMemAlloc(&address, bytes);
    *out = pointer(address);
    return result;
})

RUNTIME_API(context, cudaFree, (void* address),
            { return address ? Result(driver.cuMemFree(device(address))) : Result(cudaSuccess); })

RUNTIME_API(context, cudaMallocManaged, (void** out, size_t bytes, unsigned flags), {
    if (!out || bytes == 0) {
        return cudaErrorInvalidValue;
    }
    CUdeviceptr address = 0;
    Result result = driver.cuMemAllocManaged(&address, bytes, flags);
    *out = pointer(address);
    return result;
})

RUNTIME_API(context, cudaMallocPitch, (void** out, size_t* pitch, size_t width, size_t height), {
    if (!out || !pitch) {
        return cudaErrorInvalidValue;
    }
    *out = nullptr;
    *pitch = 0;
    if (width == 0 || height == 0) {
        return cudaSuccess;
    }
    CUdeviceptr address = 0;
    constexpr unsigned kElementBytes = 4;
    Result result = driver.cuMemAllocPitch(&address, pitch, width, height, kElementBytes);
    *out = pointer(address);
    return result;
})

RUNTIME_API(context, cudaMalloc3D, (cudaPitchedPtr * out, cudaExtent extent), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    *out = cudaPitchedPtr{nullptr, 0, extent.width, extent.height};
    size_t rows = extent.height * extent.depth;
    if (extent.width == 0 || rows == 0) {
        return cudaSuccess;
    }
    CUdeviceptr address = 0;
    Result result = driver.cuMemAllocPitch(&address, &out->pitch, extent.width, rows, 4);
    out->ptr = pointer(address);
    return result;
})

RUNTIME_TWINS(_ptsz, cudaMallocAsync, (void** out, size_t bytes, cudaStream_t stream), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    *out = nullptr;
    if (bytes == 0) {
        return cudaSuccess;
    }
    CUdeviceptr address = 0;
    Result result = driver.cuMemAllocAsync(&address, bytes, stream);
    *out = pointer(address);
    return result;
})

RUNTIME_TWINS(_ptsz, cudaMallocFromPoolAsync,
              (void** out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream), {
                  if (!out) {
                      return cudaErrorInvalidValue;
                  }
                  *out = nullptr;
                  if (bytes == 0) {
                      return cudaSuccess;
                  }
                  CUdeviceptr address = 0;
                  Result result = driver.cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
                  *out = pointer(address);
                  return result;
              })

RUNTIME_TWINS(_ptsz, cudaFreeAsync, (void* address, cudaStream_t stream), {
    return address ? Result(driver.cuMemFreeAsync(device(address), stream)) : Result(cudaSuccess);
})

RUNTIME_API(context, cudaMemGetInfo, (size_t * free_bytes, size_t* total_bytes),
            { return driver.cuMemGetInfo(free_bytes, total_bytes); })

RUNTIME_API(context, cudaMallocHost, (void** out, size_t bytes), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    *out = nullptr;
    return bytes ? Result(driver.cuMemHostAlloc(out, bytes, 0)) : Result(cudaSuccess);
})

RUNTIME_API(context, cudaHostAlloc, (void** out, size_t bytes, unsigned flags), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    *out = nullptr;
    return bytes ? Result(driver.cuMemHostAlloc(out, bytes, flags)) : Result(cudaSuccess);
})

RUNTIME_API(context, cudaFreeHost, (void* address),
            { return address ? Result(driver.cuMemFreeHost(address)) : Result(cudaSuccess); })

RUNTIME_API(context, cudaHostRegister, (void* address, size_t bytes, unsigned flags),
            { return driver.cuMemHostRegister(address, bytes, flags); })

RUNTIME_API(context, cudaHostUnregister, (void* address),
            { return driver.cuMemHostUnregister(address); })

RUNTIME_API(context, cudaHostGetDevicePointer, (void** out, void* host, unsigned flags), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    CUdeviceptr address = 0;
    Result result = driver.cuMemHostGetDevicePointer(&address, host, flags);
    *out = pointer(address);
    return result;
})

RUNTIME_API(context, cudaHostGetFlags, (unsigned* flags, void* host),
            { return driver.cuMemHostGetFlags(flags, host); })

RUNTIME_API(context, cudaMemAdvise,
            (const void* address, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location),
            {
                CUmemLocation where{};
                where.type = static_cast<CUmemLocationType>(location.type);
                where.id = location.id;
                return driver.cuMemAdvise(device(address), bytes, static_cast<CUmem_advise>(advice),
                                          where);
            })

RUNTIME_TWINS(_ptsz, cudaMemPrefetchAsync,
              (const void* address, size_t bytes, cudaMemLocation location, unsigned flags,
               cudaStream_t stream),
              {
                  CUmemLocation where{};
                  where.type = static_cast<CUmemLocationType>(location.type);
                  where.id = location.id;
                  return driver.cuMemPrefetchAsync(device(address), bytes, where, flags, stream);
              })

RUNTIME_API(context, cudaPointerGetAttributes, (cudaPointerAttributes * out, const void* address), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    unsigned type = 0;
    unsigned managed = 0;
    int ordinal = -1;
    CUdeviceptr device_address = 0;
    void* host_address = nullptr;
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&type, &managed, &ordinal, &device_address, &host_address};
    Result result = driver.cuPointerGetAttributes(5, wanted, values, device(address));
    if (!result.ok()) {
        return result;
    }
    *out = cudaPointerAttributes{};
    if (type == 0) { // Memory that CUDA does not know, freed memory included.
        out->type = cudaMemoryTypeUnregistered;
        out->device = -2; // cudaInvalidDeviceId
        out->hostPointer = const_cast<void*>(address);
        return cudaSuccess;
    }
    out->type = managed                      ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                             : cudaMemoryTypeDevice;
    out->device = ordinal;
    out->devicePointer = pointer(device_address);
    out->hostPointer = host_address;
    return cudaSuccess;
})
