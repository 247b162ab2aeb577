// The stream-ordered calls. On the default pool of a stream's device they are served from the pool
// that cudaMalloc uses, in any mixture with its calls.
//
// Not served, but left to the driver: streams of other contexts than a device's primary one, levels
// of caution beyond `fenced`, devices whose default pool is the driver's (default_pools.h), calls
// beside an open capture. What is served is classic memory: unlike the driver's it ends with its
// context, and other devices reach it by peer access.
#include "shim/cuda_order.h"
#include "shim/default_pools.h"
#include "shim/pooled.h"
#include "shim/recorded_calls.h"
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

// True if the pool has answered the call, in `answer`. Whatever else is wrong with it, the driver
// says.
bool serve(Process* state, CUdeviceptr* pointer, std::size_t bytes, CUstream stream,
           const CUmemoryPool* from, CUresult& answer) {
    answer = CUDA_SUCCESS;
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
    if (is_short(result) && may_make_room(*state) && make_room(name.context)) {
        result = pool.allocate_async(bytes, asking);
    }
    if (result.status == PoolStatus::over_limit) {
        answer = refuse(*state, *name.context, bytes);
        return true;
    }
    if (result.status != PoolStatus::done) return false;
    if (recorder_of(state) != nullptr) {
        name.context->recorded.allocated(result.address, bytes, result.size,
                                         recorded_stream(stream), trace::kStreamOrdered);
    }
    if (!source->serves()) { // whoever changed that meanwhile may not have seen this block
        pool.free_async(state->map.find(result.address), result.address, asking);
        return false;
    }
    *pointer = result.address;
    return true;
}

// Whether a call on this stream becomes a node of a graph, which moves no memory by itself.
bool is_captured(const Process& state, CUstream named_stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return state.capturing() && real.cuStreamIsCapturing(named_stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

template <class Native>
CUresult allocate_async(trace::CallName name, CUdeviceptr* pointer, std::size_t bytes,
                        CUstream named_stream, const CUmemoryPool* from, Native native) {
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    const RecordedCall call(recorder, name);
    CUresult result = CUDA_SUCCESS;
    if (serve(state, pointer, bytes, named_stream, from, result)) return result;
    result = with_room(native);
    if (recorder == nullptr) return result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) state->recording.out_of_memory(bytes);
    if (result != CUDA_SUCCESS || is_captured(*state, named_stream)) return result;
    MemoryEvent event;
    event.address = *pointer;
    event.size = bytes;
    event.stream = recorded_stream(named_stream);
    event.memory =
        from != nullptr ? trace::MemoryType::explicit_pool : trace::MemoryType::stream_ordered;
    event.flags = trace::kStreamOrdered;
    record_passed(*state, event);
    return result;
}

CUresult pass_free_async(Process* state, CUdeviceptr pointer, CUstream stream,
                         CUstream named_stream, CUresult (*native)(CUdeviceptr, CUstream)) {
    Recorder* const recorder = recorder_of(state);
    if (recorder == nullptr || is_captured(*state, named_stream)) return native(pointer, stream);
    PassedFree freed(recorder, trace::AddressSpace::device, pointer, recorded_stream(named_stream),
                     trace::kStreamOrdered);
    return freed.done(native(pointer, stream));
}

CUresult free_async(CUdeviceptr pointer, CUstream stream, CUstream named_stream,
                    CUresult (*native)(CUdeviceptr, CUstream)) {
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    const RecordedCall call(recorder, trace::CallName::mem_free_async, with_free_stack(state));
    if (state == nullptr || !state->options.pool || pointer == 0) {
        return pass_free_async(state, pointer, stream, named_stream, native);
    }
    bool ours = false;
    Block* const block = find_block(*state, pointer, ours);
    if (!ours) return pass_free_async(state, pointer, stream, named_stream, native);
    const StreamOfCall recorded(recorder, named_stream);
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
    return allocate_async(trace::CallName::mem_alloc_async, pointer, bytes, legacy_if_null(stream),
                          nullptr, [&] { return real.cuMemAllocAsync(pointer, bytes, stream); });
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr* pointer, std::size_t bytes, CUstream stream) {
    return allocate_async(trace::CallName::mem_alloc_async, pointer, bytes,
                          per_thread_if_null(stream), nullptr,
                          [&] { return real.cuMemAllocAsync_ptsz(pointer, bytes, stream); });
}

CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
    return allocate_async(
        trace::CallName::mem_alloc_from_pool_async, pointer, bytes, legacy_if_null(stream), &pool,
        [&] { return real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream); });
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, std::size_t bytes,
                                           CUmemoryPool pool, CUstream stream) {
    return allocate_async(
        trace::CallName::mem_alloc_from_pool_async, pointer, bytes, per_thread_if_null(stream),
        &pool, [&] { return real.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream); });
}

CUresult hook_cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, legacy_if_null(stream), real.cuMemFreeAsync.get());
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, per_thread_if_null(stream), real.cuMemFreeAsync_ptsz.get());
}

} // namespace cachealloc::shim
