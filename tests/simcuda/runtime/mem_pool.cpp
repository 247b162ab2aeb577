// Memory pools and handles shared between processes.
#include "tests/simcuda/runtime/pointers.h"
#include "tests/simcuda/runtime/state.h"

#include <cstring>
#include <vector>

RUNTIME_API(init, cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device),
            { return driver.cuDeviceGetDefaultMemPool(pool, device); })

RUNTIME_API(init, cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device),
            { return driver.cuDeviceGetMemPool(pool, device); })

RUNTIME_API(init, cudaDeviceSetMemPool, (int device, cudaMemPool_t pool),
            { return driver.cuDeviceSetMemPool(device, pool); })

RUNTIME_API(context, cudaMemPoolCreate, (cudaMemPool_t * pool, const cudaMemPoolProps* wanted), {
    if (!pool || !wanted) {
        return cudaErrorInvalidValue;
    }
    CUmemPoolProps props{};
    props.allocType = static_cast<CUmemAllocationType>(wanted->allocType);
    props.handleTypes = static_cast<CUmemAllocationHandleType>(wanted->handleTypes);
    props.location.type = static_cast<CUmemLocationType>(wanted->location.type);
    props.location.id = wanted->location.id;
    props.maxSize = wanted->maxSize;
    props.usage = wanted->usage;
    return driver.cuMemPoolCreate(pool, &props);
})

RUNTIME_API(context, cudaMemPoolDestroy, (cudaMemPool_t pool),
            { return driver.cuMemPoolDestroy(pool); })

RUNTIME_API(context, cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep),
            { return driver.cuMemPoolTrimTo(pool, keep); })

RUNTIME_API(context, cudaMemPoolGetAttribute,
            (cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value), {
                return driver.cuMemPoolGetAttribute(
                    pool, static_cast<CUmemPool_attribute>(attribute), value);
            })

RUNTIME_API(context, cudaMemPoolSetAttribute,
            (cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value), {
                return driver.cuMemPoolSetAttribute(
                    pool, static_cast<CUmemPool_attribute>(attribute), value);
            })

RUNTIME_API(context, cudaMemPoolSetAccess,
            (cudaMemPool_t pool, const cudaMemAccessDesc* wanted, size_t count), {
                std::vector<CUmemAccessDesc> access(count);
                for (size_t i = 0; i < count; ++i) {
                    access[i].location.type =
                        static_cast<CUmemLocationType>(wanted[i].location.type);
                    access[i].location.id = wanted[i].location.id;
                    access[i].flags = static_cast<CUmemAccess_flags>(wanted[i].flags);
                }
                return driver.cuMemPoolSetAccess(pool, access.data(), count);
            })

RUNTIME_API(context, cudaMemPoolGetAccess,
            (cudaMemAccessFlags * flags, cudaMemPool_t pool, cudaMemLocation* location), {
                CUmemLocation where{};
                where.type = static_cast<CUmemLocationType>(location->type);
                where.id = location->id;
                CUmemAccess_flags value{};
                Result result = driver.cuMemPoolGetAccess(&value, pool, &where);
                *flags = static_cast<cudaMemAccessFlags>(value);
                return result;
            })

RUNTIME_API(context, cudaMemPoolExportToShareableHandle,
            (void* handle, cudaMemPool_t pool, cudaMemAllocationHandleType type, unsigned flags), {
                return driver.cuMemPoolExportToShareableHandle(
                    handle, pool, static_cast<CUmemAllocationHandleType>(type), flags);
            })

RUNTIME_API(context, cudaMemPoolImportFromShareableHandle,
            (cudaMemPool_t * pool, void* handle, cudaMemAllocationHandleType type, unsigned flags),
            {
                return driver.cuMemPoolImportFromShareableHandle(
                    pool, handle, static_cast<CUmemAllocationHandleType>(type), flags);
            })

RUNTIME_API(context, cudaMemPoolExportPointer, (cudaMemPoolPtrExportData * data, void* address), {
    static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(cudaMemPoolPtrExportData));
    return driver.cuMemPoolExportPointer(reinterpret_cast<CUmemPoolPtrExportData*>(data),
                                         device(address));
})

RUNTIME_API(context, cudaMemPoolImportPointer,
            (void** out, cudaMemPool_t pool, cudaMemPoolPtrExportData* data), {
                CUdeviceptr address = 0;
                Result result = driver.cuMemPoolImportPointer(
                    &address, pool, reinterpret_cast<CUmemPoolPtrExportData*>(data));
                *out = pointer(address);
                return result;
            })

RUNTIME_API(context, cudaIpcGetMemHandle, (cudaIpcMemHandle_t * out, void* address), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    CUipcMemHandle handle{};
    static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t));
    Result result = driver.cuIpcGetMemHandle(&handle, device(address));
    std::memcpy(out, &handle, sizeof handle);
    return result;
})

RUNTIME_API(context, cudaIpcOpenMemHandle, (void** out, cudaIpcMemHandle_t handle, unsigned flags),
            {
                if (!out) {
                    return cudaErrorInvalidValue;
                }
                CUipcMemHandle wanted{};
                std::memcpy(&wanted, &handle, sizeof wanted);
                CUdeviceptr address = 0;
                Result result = driver.cuIpcOpenMemHandle(&address, wanted, flags);
                *out = pointer(address);
                return result;
            })

RUNTIME_API(context, cudaIpcCloseMemHandle, (void* address),
            { return driver.cuIpcCloseMemHandle(device(address)); })

RUNTIME_API(context, cudaIpcGetEventHandle, (cudaIpcEventHandle_t * out, cudaEvent_t event), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    CUipcEventHandle handle{};
    static_assert(sizeof(CUipcEventHandle) == sizeof(cudaIpcEventHandle_t));
    Result result = driver.cuIpcGetEventHandle(&handle, event);
    std::memcpy(out, &handle, sizeof handle);
    return result;
})

RUNTIME_API(context, cudaIpcOpenEventHandle, (cudaEvent_t * event, cudaIpcEventHandle_t handle), {
    CUipcEventHandle wanted{};
    std::memcpy(&wanted, &handle, sizeof wanted);
    return driver.cuIpcOpenEventHandle(event, wanted);
})
