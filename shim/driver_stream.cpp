// Birth and death of streams: the second one that is not ordered with the others ends level
// `ordered`.
#include "shim/captures.h"
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/stream_names.h"

namespace cachealloc::shim {

namespace {

CUresult created(CUresult result, const CUstream* stream, bool blocking) {
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) {
        state->total_order.stream_created(*stream, blocking);
    }
    return result;
}

bool blocking(unsigned int flags) {
    return (flags & kStreamNonBlocking) == 0;
}

template <class Call>
CUresult destroy(CUstream stream, Call call) {
    stream_is_ending();
    Process* const state = process();
    if (state != nullptr) {
        state->total_order.stream_ending(stream);
        if (state->host_watch.any()) state->host_watch.visible.stream_ends(stream);
    }
    const CUresult result = call(stream);
    if (result == CUDA_SUCCESS && state != nullptr) Captures::stream_gone(stream);
    return result;
}

} // namespace

CUresult hook_cuStreamCreate(CUstream* stream, unsigned int flags) {
    return created(real.cuStreamCreate(stream, flags), stream, blocking(flags));
}

CUresult hook_cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
    return created(real.cuStreamCreateWithPriority(stream, flags, priority), stream,
                   blocking(flags));
}

CUresult hook_cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned int flags,
                                     int priority) {
    return created(real.cuGreenCtxStreamCreate(stream, green, flags, priority), stream, false);
}

CUresult hook_cuStreamDestroy(CUstream stream) {
    return destroy(stream, real.cuStreamDestroy.get());
}

CUresult hook_cuStreamDestroy_v2(CUstream stream) {
    return destroy(stream, real.cuStreamDestroy_v2.get());
}

} // namespace cachealloc::shim
