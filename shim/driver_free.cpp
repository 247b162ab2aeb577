// cuMemFree and cuMemFreeAsync of pool memory.
//
// Invariant: an address inside a pool segment never reaches the driver's free, which would free the
// whole segment under its live blocks. For such addresses the code measured natively is returned
// here.
#include "shim/cuda_order.h"
#include "shim/driver.h"
#include "shim/pooled.h"

#include <sched.h>

namespace cachealloc::shim {

namespace {

CUresult code_of(const PoolResult& result) {
    switch (result.status) {
    case PoolStatus::done:
        return CUDA_SUCCESS;
    case PoolStatus::failed:
        return result.native != 0 ? static_cast<CUresult>(result.native) : CUDA_ERROR_UNKNOWN;
    default:
        return bad_pointer();
    }
}

// Finds the block that starts at `pointer`. A context that is just ending hides its addresses and
// may show them again; an address of such a one must not reach the driver meanwhile.
Block* find_block(Process& state, CUdeviceptr pointer, bool& ours) {
    for (;;) {
        Block* const block = state.map.find(pointer);
        ours = block != nullptr || state.map.segment_of(pointer) != nullptr;
        if (ours || state.contexts_ending.load(std::memory_order_seq_cst) == 0) return block;
        sched_yield();
    }
}

CUresult pass_free(Process* state, CUdeviceptr pointer) {
    if (state != nullptr && pointer != 0) {
        state->calls.free.fetch_add(1, std::memory_order_relaxed);
        state->calls.passed.fetch_add(1, std::memory_order_relaxed);
    }
    return real.cuMemFree_v2(pointer);
}

// Beside an open capture. The real call on no address at all gives the native answer about the
// capture (its check comes before the pointer's, measured) without touching memory.
CUresult free_beside_capture(Block* block, CUdeviceptr pointer) {
    const CUresult allowed = real.cuMemFree_v2(0);
    if (allowed != CUDA_SUCCESS) return allowed;
    if (block == nullptr) return bad_pointer();
    return code_of(block->segment->pool->set_aside(block, pointer));
}

CUresult free_async(CUdeviceptr pointer, CUstream stream, CUstream status_stream,
                    CUresult (*native)(CUdeviceptr, CUstream)) {
    Process* const state = process();
    if (state == nullptr || !state->options.pool || pointer == 0) return native(pointer, stream);
    bool ours = false;
    Block* const block = find_block(*state, pointer, ours);
    if (!ours) return native(pointer, stream);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult valid = real.cuStreamIsCapturing(status_stream, &status);
    if (valid != CUDA_SUCCESS) return valid;
    if (block == nullptr || status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return CUDA_ERROR_INVALID_VALUE; // a capture takes back only what it allocated
    }
    DevicePool& pool = *block->segment->pool;
    if (state->capturing()) return code_of(pool.set_aside(block, pointer));
    if (!static_cast<CudaOrder&>(pool.fences().order()).covers(status_stream)) {
        return CUDA_ERROR_OUT_OF_MEMORY; // no event to be had: the block stays live
    }
    return code_of(pool.free(block, pointer, FreeKind::does_not_wait));
}

} // namespace

CUresult hook_cuMemFree_v2(CUdeviceptr pointer) {
    Process* const state = process();
    if (state == nullptr || !state->options.pool || pointer == 0) return pass_free(state, pointer);
    bool ours = false;
    Block* const block = find_block(*state, pointer, ours);
    if (!ours) return pass_free(state, pointer);
    if (state->capturing()) return free_beside_capture(block, pointer);
    if (block == nullptr) return bad_pointer();
    const bool sync = state->options.free_mode == FreeMode::sync;
    const FreeKind kind = sync ? FreeKind::waits_on_host : FreeKind::waits;
    return code_of(block->segment->pool->free(block, pointer, kind));
}

CUresult hook_cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, stream, real.cuMemFreeAsync.get());
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return free_async(pointer, stream, stream == nullptr ? kStreamPerThread : stream,
                      real.cuMemFreeAsync_ptsz.get());
}

} // namespace cachealloc::shim
