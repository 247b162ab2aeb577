// cuMemAlloc: from the current context's pool, or from the driver where the pool does not serve.
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/report.h"
#include "shim/room.h"

namespace cachealloc::shim {

namespace {

CUresult pass(Process* state, CUdeviceptr* pointer, std::size_t bytes) {
    if (state != nullptr) {
        state->calls.alloc.fetch_add(1, std::memory_order_relaxed);
        state->calls.passed.fetch_add(1, std::memory_order_relaxed);
    }
    return real.cuMemAlloc_v2(pointer, bytes);
}

} // namespace

// The driver has the last word on every failure, with the program's own size and in its own capture
// mode, so that each error is the native one.
CUresult hook_cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
    Process* const state = process();
    if (state == nullptr || !state->options.pool || pointer == nullptr || bytes == 0 ||
        state->capturing()) {
        return pass(state, pointer, bytes);
    }
    ContextPool* const context = state->contexts.current();
    if (context == nullptr) return pass(state, pointer, bytes);
    PoolResult result = context->pool.allocate(bytes);
    if (result.status == PoolStatus::out_of_memory && make_room(context)) {
        result = context->pool.allocate(bytes);
    }
    if (result.status == PoolStatus::done) {
        *pointer = result.address;
        return CUDA_SUCCESS;
    }
    const CUresult native = pass(state, pointer, bytes);
    if (native == CUDA_ERROR_OUT_OF_MEMORY && result.status == PoolStatus::out_of_memory) {
        report_out_of_memory(*context, bytes);
    }
    return native;
}

} // namespace cachealloc::shim
