// Stream-ordered allocation and memory pools. A pool keeps nothing back: memory returns to the
// device when the free runs.
#include <algorithm>

#include "guard.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

Device* device_of(CUdevice dev) {
    return dev >= 0 && static_cast<std::size_t>(dev) < world().devices.size()
               ? world().devices[static_cast<std::size_t>(dev)].get()
               : nullptr;
}

CUresult allocate(const StreamPtr& s, const PoolPtr& pool, CUdeviceptr* p, std::size_t bytes) {
    World& w = world();
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s->capture == nullptr) {
        SIM_TRY(forbid_while_capturing(true));
    }
    if (bytes == 0) {
        *p = 0;
        return CUDA_SUCCESS;
    }
    DeviceMemory& memory = w.devices[static_cast<std::size_t>(pool->device)]->memory;
    std::uintptr_t base = memory.allocate(bytes);
    if (base == 0 && s->capture == nullptr) {
        // Frees on their way may make room.
        w.wait(w.all_of(s->ctx, "cuMemAllocAsync without memory"));
        base = memory.allocate(bytes);
    }
    if (base == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Work work;
    work.label = "cuMemAllocAsync";
    work.duration = 0;
    work.passes_free = true;
    if (const CUresult r = submit(s, std::move(work)); r != CUDA_SUCCESS) {
        memory.release(base, bytes);
        return r;
    }
    Allocation a;
    a.base = base;
    a.size = bytes;
    a.kind = Memory::pool;
    a.device = pool->device;
    a.ctx = owner_of(s->ctx);
    *p = base;
    if (s->capture != nullptr) {
        // A graph's memory is no pool's; it goes with the graph, unless the program freed it.
        const std::uint64_t id = w.map.add(std::move(a))->buffer_id;
        s->tail.front()->memory = std::shared_ptr<void>(nullptr, [&w, base, id](void*) {
            const auto known = w.map.at(base);
            if (known != nullptr && known->buffer_id == id) {
                drop_allocation(known);
            }
        });
        return CUDA_SUCCESS;
    }
    a.pool = pool;
    w.map.add(std::move(a));
    pool->used += bytes;
    pool->reserved += round_up(bytes, kAlignment);
    pool->used_high = std::max(pool->used_high, pool->used);
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
    return CUDA_SUCCESS;
}

CUresult alloc_async(bool pt, CUdeviceptr* p, std::size_t bytes, CUstream stream) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    return allocate(s, device_of(s->ctx->device)->current_pool, p, bytes);
}

CUresult alloc_from(bool pt, CUdeviceptr* p, std::size_t bytes, CUmemoryPool handle,
                    CUstream stream) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    const PoolPtr pool = world().pools.find(handle);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : allocate(s, pool, p, bytes);
}

// Whoever uses the memory without being ordered before the free is found by the oracle: to it the
// free is a write of every byte.
CUresult free_async(bool pt, CUdeviceptr p, CUstream stream) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    if (p == 0) {
        return CUDA_SUCCESS;
    }
    // As measured, memory of cuMemAlloc may be freed this way too.
    const auto a = world().map.at(p);
    if (a == nullptr || a->freeing || (a->kind != Memory::pool && a->kind != Memory::device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s->capture == nullptr) {
        SIM_TRY(forbid_while_capturing(true));
    } else if (a->kind == Memory::device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Work work;
    work.label = "cuMemFreeAsync";
    work.duration = 0;
    work.passes_free = true;
    work.accesses.push_back({a->base, a->size, true});
    const bool captured = s->capture != nullptr;
    if (!captured) {
        work.effect = [a] {
            check_live_blocks(*a, "cuMemFreeAsync");
            drop_allocation(a);
        };
    }
    SIM_TRY(submit(s, std::move(work)));
    a->freeing = !captured;
    return CUDA_SUCCESS;
}

CUresult get_pool(CUmemoryPool* out, CUdevice dev, bool current) {
    Device* d = device_of(dev);
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *out = (current ? d->current_pool : d->default_pool)->handle;
    return CUDA_SUCCESS;
}

CUresult set_pool(CUdevice dev, CUmemoryPool handle) {
    Device* d = device_of(dev);
    const PoolPtr pool = world().pools.find(handle);
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (pool == nullptr || pool->device != dev) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    d->current_pool = pool;
    return CUDA_SUCCESS;
}

bool on_device(const CUmemLocation* location) {
    return location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
}

bool is_flag(CUmemPool_attribute attribute) {
    return attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
           attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
           attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

} // namespace

SIM_TWINS(cuMemAllocAsync, cuMemAllocAsync_ptsz, alloc_async,
          (CUdeviceptr * p, size_t n, CUstream s), p, n, s)
SIM_TWINS(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz, alloc_from,
          (CUdeviceptr * p, size_t n, CUmemoryPool pool, CUstream s), p, n, pool, s)
SIM_TWINS(cuMemFreeAsync, cuMemFreeAsync_ptsz, free_async, (CUdeviceptr p, CUstream s), p, s)

SIM_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice dev) {
    SIM_ENTER(cuDeviceGetDefaultMemPool);
    return get_pool(pool, dev, false);
}
SIM_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
    SIM_ENTER(cuDeviceGetMemPool);
    return get_pool(pool, dev, true);
}
SIM_EXPORT CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    SIM_ENTER(cuDeviceSetMemPool);
    return set_pool(dev, pool);
}
SIM_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                           CUmemAllocationType) {
    SIM_ENTER(cuMemGetDefaultMemPool);
    return on_device(location) ? get_pool(pool, location->id, false) : CUDA_ERROR_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                    CUmemAllocationType) {
    SIM_ENTER(cuMemGetMemPool);
    return on_device(location) ? get_pool(pool, location->id, true) : CUDA_ERROR_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType,
                                    CUmemoryPool pool) {
    SIM_ENTER(cuMemSetMemPool);
    return on_device(location) ? set_pool(location->id, pool) : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
    SIM_ENTER(cuMemPoolCreate);
    if (out == nullptr || props == nullptr || !on_device(&props->location) ||
        device_of(props->location.id) == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto pool = std::make_shared<Pool>();
    pool->device = props->location.id;
    *out = world().pools.add(pool);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    SIM_ENTER(cuMemPoolDestroy);
    const PoolPtr pool = world().pools.find(handle);
    if (pool == nullptr || pool->is_default) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Device* d = device_of(pool->device);
    if (d->current_pool == pool) {
        d->current_pool = d->default_pool;
    }
    world().pools.remove(handle);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                          void* value) {
    SIM_ENTER(cuMemPoolSetAttribute);
    const PoolPtr pool = world().pools.find(handle);
    if (pool == nullptr || value == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_flag(attribute)) {
        pool->attributes[attribute] = static_cast<std::uint64_t>(*static_cast<int*>(value));
    } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->attributes[attribute] = *static_cast<cuuint64_t*>(value);
    } else if ((attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) &&
               *static_cast<cuuint64_t*>(value) != 0) {
        return CUDA_ERROR_INVALID_VALUE; // it can be set back only
    } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
        pool->reserved_high = pool->reserved;
    } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        pool->used_high = pool->used;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                          void* value) {
    SIM_ENTER(cuMemPoolGetAttribute);
    const PoolPtr pool = world().pools.find(handle);
    if (pool == nullptr || value == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_flag(attribute)) {
        const auto it = pool->attributes.find(attribute);
        *static_cast<int*>(value) = it == pool->attributes.end() ? 1 : static_cast<int>(it->second);
        return CUDA_SUCCESS;
    }
    auto* out = static_cast<cuuint64_t*>(value);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *out = pool->attributes[attribute];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *out = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *out = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *out = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *out = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
    SIM_ENTER(cuMemPoolTrimTo);
    SIM_TRY(forbid_while_capturing(true));
    return world().pools.find(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map,
                                       size_t count) {
    SIM_ENTER(cuMemPoolSetAccess);
    const PoolPtr pool = world().pools.find(handle);
    if (pool == nullptr || (map == nullptr && count > 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const CUmemAccessDesc& d = map[i];
        const bool known = d.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                           d.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (!on_device(&d.location) || device_of(d.location.id) == nullptr || !known) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (d.location.id == pool->device && d.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            return CUDA_ERROR_INVALID_DEVICE; // a pool is never hidden from its own device
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        pool->access[map[i].location.id] = map[i].flags;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                                       CUmemLocation* location) {
    SIM_ENTER(cuMemPoolGetAccess);
    const PoolPtr pool = world().pools.find(handle);
    if (pool == nullptr || flags == nullptr || !on_device(location)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto it = pool->access.find(location->id);
    *flags = location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : it == pool->access.end()   ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                                          : static_cast<CUmemAccess_flags>(it->second);
    return CUDA_SUCCESS;
}

// No pool here can be shared with other processes: a default one never can, and the others were
// created without a type of handle.
SIM_EXPORT CUresult cuMemPoolExportToShareableHandle(void*, CUmemoryPool, CUmemAllocationHandleType,
                                                     unsigned long long) {
    SIM_ENTER(cuMemPoolExportToShareableHandle);
    return CUDA_ERROR_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData*, CUdeviceptr) {
    SIM_ENTER(cuMemPoolExportPointer);
    return CUDA_ERROR_INVALID_VALUE;
}
SIM_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr*, CUmemoryPool, CUmemPoolPtrExportData*) {
    SIM_ENTER(cuMemPoolImportPointer);
    return CUDA_ERROR_INVALID_VALUE;
}
