// What a program may ask about memory: answered per allocation, as natively, never per segment.
#include "shim/cuda_order.h"
#include "shim/default_pools.h"
#include "shim/driver.h"
#include "shim/pooled.h"

#include <algorithm>

namespace cachealloc::shim {

namespace {

// Unique per allocation, like the driver's own, and far above any that the driver has given out
// (it counts up from 1).
std::uint64_t buffer_id(const Block& block) {
    return std::uint64_t{1} << 62 | std::uint64_t{block.index} << 32 | block.generation;
}

bool asynchronous(const Block& block) {
    return block.asynchronous.load(std::memory_order_relaxed);
}

// The default pool for what a stream-ordered call got, null for the rest.
CUmemoryPool mempool_of(const Block& block) {
    if (!asynchronous(block)) return nullptr;
    const auto& order = static_cast<CudaOrder&>(block.segment->pool->fences().order());
    const DefaultPool* const pool = DefaultPool::of(order.device());
    return pool != nullptr ? pool->handle() : nullptr;
}

CUcontext context_of(const Block& block) {
    return static_cast<CudaOrder&>(block.segment->pool->fences().order()).owner().handle;
}

// Replaces what depends on where the allocation begins. The mapping's base and size stay: they are
// physical natively too, 2 MiB around a block of 1,000 bytes.
void answer(const Block& block, CUpointer_attribute attribute, void* data) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: // mapped memory has none
        if (!asynchronous(block)) *static_cast<CUcontext*>(data) = context_of(block);
        return;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<std::uint64_t*>(data) = buffer_id(block);
        return;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(data) = block.address;
        return;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(data) = block.requested.load(std::memory_order_relaxed);
        return;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        if (asynchronous(block) || block.address != block.segment->base)
            *static_cast<int*>(data) = 0;
        return;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *static_cast<CUmemoryPool*>(data) = mempool_of(block);
        return;
    default:
        return;
    }
}

// Somebody outside CUDA is about to learn of this memory. A writer: what used it before must be
// done. A reader: what a program tells it after a free must be true then.
CUresult await_users(const Owned& owned) {
    if (owned.segment == nullptr || owned.live == nullptr) return CUDA_SUCCESS;
    if (Process* const state = process()) state->host_watch.reachable.read_from_outside();
    const PoolResult result = owned.segment->pool->await_earlier_users();
    if (result.status == PoolStatus::done || result.native == 0) return CUDA_SUCCESS;
    return static_cast<CUresult>(result.native);
}

} // namespace

CUresult hook_cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
    const CUresult result = real.cuMemGetInfo_v2(free_bytes, total_bytes);
    Process* const state = process();
    if (result != CUDA_SUCCESS || free_bytes == nullptr || state == nullptr) return result;
    CUdevice device = 0;
    if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS) return result;
    state->contexts.for_each([&](ContextPool& context) {
        if (context.device == device) *free_bytes += context.pool.wholly_free_bytes();
    });
    if (total_bytes != nullptr) *free_bytes = std::min(*free_bytes, *total_bytes);
    return result;
}

// The driver is asked first, so that its errors (no context, a fault) stay native; what it says of
// the segment is then replaced by what holds for the allocation.
CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer) {
    Process* const state = process();
    const Owned owned = state == nullptr ? Owned{} : owner_of(*state, pointer);
    const bool freed = owned.segment != nullptr && owned.live == nullptr;
    const CUresult result = real.cuMemGetAddressRange_v2(base, size, freed ? kNowhere : pointer);
    if (result != CUDA_SUCCESS || owned.live == nullptr) return result;
    if (base != nullptr) *base = owned.live->address;
    if (size != nullptr) *size = owned.live->requested.load(std::memory_order_relaxed);
    return CUDA_SUCCESS;
}

CUresult hook_cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                    CUdeviceptr pointer) {
    Process* const state = process();
    const Owned owned = state == nullptr ? Owned{} : owner_of(*state, pointer);
    const bool freed = owned.segment != nullptr && owned.live == nullptr;
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
        if (const CUresult waited = await_users(owned)) return waited;
    }
    const CUresult result = real.cuPointerGetAttribute(data, attribute, freed ? kNowhere : pointer);
    if (result == CUDA_SUCCESS && owned.live != nullptr) answer(*owned.live, attribute, data);
    return result;
}

CUresult hook_cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes,
                                     void** data, CUdeviceptr pointer) {
    Process* const state = process();
    const Owned owned = state == nullptr ? Owned{} : owner_of(*state, pointer);
    if (owned.segment == nullptr) {
        return real.cuPointerGetAttributes(count, attributes, data, pointer);
    }
    if (owned.live == nullptr)
        return real.cuPointerGetAttributes(count, attributes, data, kNowhere);
    const CUresult result = real.cuPointerGetAttributes(count, attributes, data, pointer);
    if (result != CUDA_SUCCESS) return result;
    for (unsigned int i = 0; i < count; ++i)
        answer(*owned.live, attributes[i], data[i]);
    return CUDA_SUCCESS;
}

CUresult hook_cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                    CUdeviceptr pointer) {
    Process* const state = process();
    const Owned owned = state == nullptr ? Owned{} : owner_of(*state, pointer);
    if (owned.segment != nullptr) {
        if (owned.live == nullptr) pointer = kNowhere;
        if (const CUresult waited = await_users(owned)) return waited;
    }
    return real.cuPointerSetAttribute(value, attribute, pointer);
}

CUresult hook_cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, std::size_t size,
                                            CUmemRangeHandleType type, unsigned long long flags) {
    Process* const state = process();
    const Owned owned = state == nullptr ? Owned{} : owner_of(*state, pointer);
    if (owned.segment != nullptr) {
        if (owned.live == nullptr) pointer = kNowhere;
        if (const CUresult waited = await_users(owned)) return waited;
    }
    return real.cuMemGetHandleForAddressRange(handle, pointer, size, type, flags);
}

} // namespace cachealloc::shim
