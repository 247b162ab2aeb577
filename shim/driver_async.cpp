// The stream-ordered calls. On the default pool of a stream's device they are served from the pool
// that cudaMalloc uses, in any mixture with its calls.
//
// Not served, but left to the driver: streams of other contexts than a device's primary one, levels
// of caution beyond `fenced`, devices whose default pool is the driver's (default_pools.h), calls
// beside an open capture. What is served is classic memory: unlike the driver's it ends with its
// context, and other devices reach it by peer access.
#include "shim/cuda_order.h"
#include "shim/default_pools.h"
#include "shim/driver.h"
#include "shim/pooled.h"
#include "shim/room.h"
#include "shim/stream_names.h"

namespace cachealloc::shim {

namespace {

NamedStream named(const StreamName& name, CUstream stream) {
    NamedStream result;
    result.id = name.id;
    result.handle = reinterpret_cast<StreamHandle>(stream);
    return result;
}

// True if the pool has served the call. Whatever is wrong with it, the driver says.
bool serve(CUdeviceptr* pointer, std::size_t bytes, CUstream stream, const CUmemoryPool* from) {
    Process* const state = process();
    if (state == nullptr || !state->options.pool ||
        state->options.async_mode == AsyncMode::driver || pointer == nullptr || bytes == 0 ||
        state->capturing()) {
        return false;
    }
    StreamName name;
    if (name_stream(*state, stream, name) != CUDA_SUCCESS || name.context == nullptr ||
        !name.primary) {
        return false;
    }
    DefaultPool* const source = DefaultPool::of(name.context->device);
    if (source == nullptr || !source->serves()) return false;
    if (from != nullptr && *from != source->handle()) return false;
    NamedStream asking = named(name, stream);
    asking.reuse_finished = source->reuse_finished();
    asking.reuse_waiting = source->reuse_waiting();
    DevicePool& pool = name.context->pool;
    PoolResult result = pool.allocate_async(bytes, asking);
    if (result.status == PoolStatus::out_of_memory && make_room(name.context)) {
        result = pool.allocate_async(bytes, asking);
    }
    if (result.status != PoolStatus::done) return false;
    if (!source->serves()) { // whoever changed that meanwhile may not have seen this block
        pool.free_async(state->map.find(result.address), result.address, asking);
        return false;
    }
    *pointer = result.address;
    return true;
}

CUresult free_async(CUdeviceptr pointer, CUstream stream, CUstream named_stream,
                    CUresult (*native)(CUdeviceptr, CUstream)) {
    Process* const state = process();
    if (state == nullptr || !state->options.pool || pointer == 0) return native(pointer, stream);
    bool ours = false;
    Block* const block = find_block(*state, pointer, ours);
    if (!ours) return native(pointer, stream);
    if (state->capturing()) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        const CUresult valid = real.cuStreamIsCapturing(named_stream, &status);
        if (valid != CUDA_SUCCESS) return valid;
        if (block == nullptr || status != CU_STREAM_CAPTURE_STATUS_NONE) {
            return CUDA_ERROR_INVALID_VALUE; // a capture takes back only what it allocated
        }
        return code_of(block->segment->pool->set_aside(block, pointer));
    }
    StreamName name;
    const CUresult valid = name_stream(*state, named_stream, name);
    if (valid != CUDA_SUCCESS) return valid;
    if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
    DevicePool& pool = *block->segment->pool;
    if (name.context != nullptr && &name.context->pool == &pool) {
        return code_of(pool.free_async(block, pointer, named(name, named_stream)));
    }
    if (!static_cast<CudaOrder&>(pool.fences().order()).covers(named_stream)) {
        return CUDA_ERROR_OUT_OF_MEMORY; // no event to be had: the block stays live
    }
    return code_of(pool.free(block, pointer, FreeKind::does_not_wait));
}

} // namespace

CUresult hook_cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream stream) {
    if (serve(pointer, bytes, legacy_if_null(stream), nullptr)) return CUDA_SUCCESS;
    return with_room([&] { return real.cuMemAllocAsync(pointer, bytes, stream); });
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr* pointer, std::size_t bytes, CUstream stream) {
    if (serve(pointer, bytes, per_thread_if_null(stream), nullptr)) return CUDA_SUCCESS;
    return with_room([&] { return real.cuMemAllocAsync_ptsz(pointer, bytes, stream); });
}

CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
    if (serve(pointer, bytes, legacy_if_null(stream), &pool)) return CUDA_SUCCESS;
    return with_room([&] { return real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream); });
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, std::size_t bytes,
                                           CUmemoryPool pool, CUstream stream) {
    if (serve(pointer, bytes, per_thread_if_null(stream), &pool)) return CUDA_SUCCESS;
    return with_room(
        [&] { return real.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream); });
}

CUresult hook_cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, legacy_if_null(stream), real.cuMemFreeAsync.get());
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, per_thread_if_null(stream), real.cuMemFreeAsync_ptsz.get());
}

} // namespace cachealloc::shim
