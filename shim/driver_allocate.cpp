// cuMemAlloc: from the current context's pool, or from the driver where the pool does not serve.
#include "shim/driver_time.h"
#include "shim/recorded_calls.h"
#include "shim/report.h"
#include "shim/room.h"

namespace cachealloc::shim {

namespace {

CUresult pass(Process* state, CUdeviceptr* pointer, std::size_t bytes) {
    if (state == nullptr) return real.cuMemAlloc_v2(pointer, bytes);
    state->calls.alloc.fetch_add(1, std::memory_order_relaxed);
    state->calls.passed.fetch_add(1, std::memory_order_relaxed);
    const CUresult result = [&] {
        const DriverTime time(state->calls.alloc_ns);
        return real.cuMemAlloc_v2(pointer, bytes);
    }();
    if (recorder_of(state) == nullptr) return result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) state->recording.out_of_memory(bytes);
    if (result != CUDA_SUCCESS || pointer == nullptr) return result;
    MemoryEvent event;
    event.address = *pointer;
    event.size = bytes;
    event.memory = trace::MemoryType::device;
    event.flags = state->options.pool ? trace::kPassed : 0;
    record_passed(*state, event);
    return result;
}

} // namespace

// The driver has the last word on every failure, with the program's own size and in its own capture
// mode, so that each error is the native one.
CUresult hook_cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    const RecordedCall call(recorder, trace::CallName::mem_alloc);
    if (state == nullptr || !state->options.pool || pointer == nullptr || bytes == 0 ||
        state->capturing()) {
        return pass(state, pointer, bytes);
    }
    ContextPool* const context = state->contexts.current();
    if (context == nullptr) return pass(state, pointer, bytes);
    PoolResult result = context->pool.allocate(bytes);
    if (is_short(result) && may_make_room(*state) && make_room(context)) {
        result = context->pool.allocate(bytes);
    }
    if (result.status == PoolStatus::done) {
        *pointer = result.address;
        if (recorder != nullptr) {
            context->recorded.allocated(result.address, bytes, result.size, 0, 0);
        }
        return CUDA_SUCCESS;
    }
    if (result.status == PoolStatus::over_limit) return refuse(*state, *context, bytes);
    const CUresult native = pass(state, pointer, bytes);
    if (native == CUDA_ERROR_OUT_OF_MEMORY && result.status == PoolStatus::out_of_memory) {
        report_out_of_memory(*context, bytes);
    }
    return native;
}

} // namespace cachealloc::shim
