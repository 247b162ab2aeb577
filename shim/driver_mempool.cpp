// What a program asks of, sets on and does with a device's default memory pool: its figures include
// what is served from ours, and what ours cannot do hands the device back to the driver. Other
// pools are the driver's alone.
//
// The driver is asked first each time: a call that fails changes nothing here.
#include "shim/default_pools.h"
#include "shim/pooled.h"
#include "shim/recorded_calls.h"

#include <algorithm>

namespace cachealloc::shim {

namespace {

// Our pool behind a default one's handle, null if there is none.
DevicePool* ours(CUmemoryPool handle) {
    Process* const state = process();
    DefaultPool* const known = DefaultPool::of(handle);
    if (state == nullptr || known == nullptr) return nullptr;
    ContextPool* const context = state->contexts.primary_of(known->device());
    return context != nullptr ? &context->pool : nullptr;
}

void add_ours(DevicePool& pool, CUmemPool_attribute attribute, void* value) {
    auto& sum = *static_cast<std::uint64_t*>(value);
    const AsyncMemory memory = pool.async_memory();
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        sum += memory.reserved;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        sum += memory.reserved_peak;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        sum += memory.used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        sum += memory.used_peak;
        break;
    default:
        break;
    }
}

void note_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void* value) {
    DefaultPool* const known = DefaultPool::of(handle);
    if (known == nullptr) return;
    DevicePool* const pool = ours(handle);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        known->note(attribute, *static_cast<const int*>(value));
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (pool != nullptr) pool->reset_reserved_peak();
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (pool != nullptr) pool->reset_used_peak();
        break;
    default:
        break;
    }
}

// The device's current pool has been set.
CUresult replaced(CUresult result, CUdevice device, CUmemoryPool pool) {
    DefaultPool* const known = DefaultPool::of(device);
    if (result != CUDA_SUCCESS || known == nullptr) return result;
    CUmemoryPool original = nullptr;
    if (real.cuDeviceGetDefaultMemPool(&original, device) != CUDA_SUCCESS || original != pool) {
        known->leave();
    }
    return result;
}

} // namespace

CUresult hook_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    return replaced(real.cuDeviceSetMemPool(device, pool), device, pool);
}

CUresult hook_cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                              CUmemoryPool pool) {
    const CUresult result = real.cuMemSetMemPool(location, type, pool);
    if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return result;
    return replaced(result, location->id, pool);
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    const CUresult result = real.cuMemPoolGetAttribute(pool, attribute, value);
    if (result != CUDA_SUCCESS || attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) return result;
    if (DevicePool* const mine = ours(pool)) add_ours(*mine, attribute, value);
    return result;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    const CUresult result = real.cuMemPoolSetAttribute(pool, attribute, value);
    if (result == CUDA_SUCCESS) note_attribute(pool, attribute, value);
    return result;
}

// `keep` counts both: what ours holds first, the driver's gets the rest of it.
CUresult hook_cuMemPoolTrimTo(CUmemoryPool pool, std::size_t keep) {
    DevicePool* const mine = ours(pool);
    const std::uint64_t held = mine != nullptr ? mine->async_memory().reserved : 0;
    const CUresult result = real.cuMemPoolTrimTo(pool, keep > held ? keep - held : 0);
    Process* const state = process();
    if (result != CUDA_SUCCESS || mine == nullptr || state->capturing()) return result;
    Recorder* const recorder = recorder_of(state);
    const RecordedCall call(recorder, trace::CallName::trim);
    MemoryEvent event;
    event.size = mine->trim_to(keep);
    event.device = static_cast<std::uint8_t>(DefaultPool::of(pool)->device());
    if (recorder != nullptr) recorder->note(trace::EventKind::trim, event);
    return result;
}

// Should what was served not become reachable although the driver's pool did, the program is told,
// and has the driver's pool from then on all the same.
CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, std::size_t count) {
    CUresult result = real.cuMemPoolSetAccess(pool, map, count);
    Process* const state = process();
    DefaultPool* const known = DefaultPool::of(pool);
    if (result != CUDA_SUCCESS || known == nullptr || state == nullptr) return result;
    for (std::size_t i = 0; i < count; ++i) {
        const CUmemLocation& location = map[i].location;
        if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || location.id == known->device() ||
            map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            continue;
        }
        known->leave();
        const CUresult reachable = make_reachable(*state, known->device(), location.id);
        if (result == CUDA_SUCCESS) result = reachable;
    }
    return result;
}

CUresult hook_cuMemPoolExportToShareableHandle(void* handle, CUmemoryPool pool,
                                               CUmemAllocationHandleType type,
                                               unsigned long long flags) {
    const CUresult result = real.cuMemPoolExportToShareableHandle(handle, pool, type, flags);
    DefaultPool* const known = DefaultPool::of(pool);
    if (result == CUDA_SUCCESS && known != nullptr) known->leave();
    return result;
}

// Memory of ours is in no pool of the driver's.
CUresult hook_cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
    Process* const state = process();
    const bool mine = state != nullptr && state->map.segment_of(pointer) != nullptr;
    const CUresult result = real.cuMemPoolExportPointer(data, mine ? kNowhere : pointer);
    CUmemoryPool pool = nullptr;
    if (result == CUDA_SUCCESS &&
        real.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer) ==
            CUDA_SUCCESS) {
        if (DefaultPool* const known = DefaultPool::of(pool)) known->leave();
    }
    return result;
}

} // namespace cachealloc::shim
