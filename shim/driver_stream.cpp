// Birth and death of streams: how many there are is the hint whether several are in use.
#include "shim/captures.h"
#include "shim/driver.h"
#include "shim/process.h"

namespace cachealloc::shim {

namespace {

CUresult created(CUresult result) {
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) {
        state->created_streams.fetch_add(1, std::memory_order_relaxed);
    }
    return result;
}

CUresult destroyed(CUresult result, CUstream stream) {
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) {
        state->created_streams.fetch_sub(1, std::memory_order_relaxed);
        Captures::destroyed(stream);
    }
    return result;
}

} // namespace

CUresult hook_cuStreamCreate(CUstream* stream, unsigned int flags) {
    return created(real.cuStreamCreate(stream, flags));
}

CUresult hook_cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
    return created(real.cuStreamCreateWithPriority(stream, flags, priority));
}

CUresult hook_cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned int flags,
                                     int priority) {
    return created(real.cuGreenCtxStreamCreate(stream, green, flags, priority));
}

CUresult hook_cuStreamDestroy(CUstream stream) {
    return destroyed(real.cuStreamDestroy(stream), stream);
}

CUresult hook_cuStreamDestroy_v2(CUstream stream) {
    return destroyed(real.cuStreamDestroy_v2(stream), stream);
}

} // namespace cachealloc::shim
