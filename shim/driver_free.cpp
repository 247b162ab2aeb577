// cuMemFree of pool memory.
//
// Invariant: an address inside a pool segment never reaches the driver's free, which would free the
// whole segment under its live blocks. For such addresses the code measured natively is returned
// here.
#include "shim/driver_time.h"
#include "shim/pooled.h"
#include "shim/recorded_calls.h"

namespace cachealloc::shim {

namespace {

CUresult pass_free(Process* state, CUdeviceptr pointer) {
    if (state == nullptr || pointer == 0) return real.cuMemFree_v2(pointer);
    state->calls.free.fetch_add(1, std::memory_order_relaxed);
    state->calls.passed.fetch_add(1, std::memory_order_relaxed);
    HostWatch& watch = state->host_watch;
    const bool managed = watch.reachable.freeing(pointer);
    PassedFree freed(recorder_of(state), trace::AddressSpace::device, pointer);
    const CUresult result = [&] {
        const DriverTime time(state->calls.free_ns);
        return freed.done(real.cuMemFree_v2(pointer));
    }();
    if (result == CUDA_SUCCESS) {
        watch.settle_idle(); // it has waited
    } else if (managed) {
        watch.reachable.not_freed(pointer);
    }
    return result;
}

ContextPool& context_of(const Block& block) {
    return static_cast<CudaOrder&>(block.segment->pool->fences().order()).owner();
}

// Beside an open capture. The real call on no address at all gives the native answer about the
// capture (its check comes before the pointer's, measured) without touching memory.
CUresult free_beside_capture(Process& state, Block* block, CUdeviceptr pointer) {
    const CUresult allowed = real.cuMemFree_v2(0);
    if (allowed != CUDA_SUCCESS) return allowed;
    if (block == nullptr) return bad_pointer();
    ContextPool& context = context_of(*block);
    const bool asynchronous = block->asynchronous.load(std::memory_order_relaxed);
    const CUresult result = code_of(block->segment->pool->set_aside(block, pointer));
    if (result == CUDA_SUCCESS && !asynchronous) state.host_watch.wait_beside_capture(context);
    return result;
}

} // namespace

CUresult hook_cuMemFree_v2(CUdeviceptr pointer) {
    Process* const state = process();
    const RecordedCall call(recorder_of(state), trace::CallName::mem_free, with_free_stack(state));
    if (state == nullptr || !state->options.pool || pointer == 0) return pass_free(state, pointer);
    bool ours = false;
    Block* const block = find_block(*state, pointer, ours);
    if (!ours) return pass_free(state, pointer);
    if (state->capturing()) return free_beside_capture(*state, block, pointer);
    if (block == nullptr) return bad_pointer();
    return code_of(state->host_watch.free(context_of(*block), block, pointer));
}

} // namespace cachealloc::shim
