#include "shim/room.h"

#include "core/record/recorder.h"
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/recorded_calls.h"
#include "shim/report.h"

#include <vector>

namespace cachealloc::shim {

bool may_make_room(const Process& process) {
    return !process.options.throw_on_cudamalloc_oom;
}

CUresult refuse(Process& process, ContextPool& context, std::uint64_t bytes) {
    if (recorder_of(&process) != nullptr) process.recording.out_of_memory(bytes);
    report_out_of_memory(context, bytes, true);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

bool make_room(const ContextPool* except) {
    Process* const state = process();
    CUdevice device = 0;
    if (state == nullptr || !state->options.pool || state->capturing() ||
        real.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return false;
    }
    std::vector<ContextPool*> pools;
    state->contexts.for_each([&](ContextPool& context) {
        if (context.device == device && &context != except) pools.push_back(&context);
    });
    std::uint64_t released = 0;
    for (ContextPool* const context : pools)
        released += context->pool.release_all();
    if (Recorder* const recorder = state->recording.recorder()) {
        MemoryEvent event;
        event.size = released;
        event.device = static_cast<std::uint8_t>(device);
        recorder->note(trace::EventKind::trim, event);
    }
    return released != 0;
}

} // namespace cachealloc::shim
