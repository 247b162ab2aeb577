// Events over all work of a context.
#include "guard.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

bool has_context_events() {
    return world().setting("driver") >= 12050;
}

} // namespace

SIM_EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event) {
    SIM_ENTER(cuCtxRecordEvent);
    if (!has_context_events()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (handle == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    ContextPtr ctx;
    SIM_TRY(context_of(handle, &ctx));
    const EventPtr e = world().events.find(event);
    if (e == nullptr || e->ctx != ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    SIM_TRY(ctx->fault);
    pass_free_gate(ctx);
    SIM_TRY(forbid_context_captures(ctx));
    e->capture = nullptr;
    e->op = world().all_of(ctx, "cuCtxRecordEvent");
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxWaitEvent(CUcontext handle, CUevent event) {
    SIM_ENTER(cuCtxWaitEvent);
    if (!has_context_events()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (handle == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    ContextPtr ctx;
    SIM_TRY(context_of(handle, &ctx));
    const EventPtr e = world().events.find(event);
    if (e == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    SIM_TRY(ctx->fault);
    SIM_TRY(forbid_context_captures(ctx));
    if (e->op != nullptr) {
        world().add_barrier(ctx, e->op);
    }
    return CUDA_SUCCESS;
}
