// Calls in which a program learns of a fault: from then on its allocations fail natively, so the
// pool serves nothing more.
#include "shim/driver.h"
#include "shim/process.h"

namespace cachealloc::shim {

namespace {

CUresult noted(CUresult result) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return result;
    Process* const state = process();
    if (state == nullptr || translate(result).status != OrderStatus::lost) return result;
    // A wrong handle is no fault: ask the context itself.
    if (ContextPool* const context = state->contexts.current()) {
        if (!state->capturing()) context->pool.check_for_fault();
    }
    return result;
}

} // namespace

CUresult hook_cuCtxSynchronize() {
    return noted(real.cuCtxSynchronize());
}

CUresult hook_cuCtxSynchronize_v2(CUcontext context) {
    return noted(real.cuCtxSynchronize_v2(context));
}

CUresult hook_cuStreamSynchronize(CUstream stream) {
    return noted(real.cuStreamSynchronize(stream));
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream stream) {
    return noted(real.cuStreamSynchronize_ptsz(stream));
}

CUresult hook_cuStreamQuery(CUstream stream) {
    return noted(real.cuStreamQuery(stream));
}

CUresult hook_cuStreamQuery_ptsz(CUstream stream) {
    return noted(real.cuStreamQuery_ptsz(stream));
}

CUresult hook_cuEventSynchronize(CUevent event) {
    return noted(real.cuEventSynchronize(event));
}

CUresult hook_cuEventQuery(CUevent event) {
    return noted(real.cuEventQuery(event));
}

} // namespace cachealloc::shim
