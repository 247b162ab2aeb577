// Events over all work of a context, or of a green one.
#include "guard.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

CUresult context_with_events(CUcontext handle, ContextPtr* ctx) {
    if (world().setting("driver") < 12050) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return handle == nullptr ? CUDA_ERROR_INVALID_CONTEXT : context_of(handle, ctx);
}

CUresult record(const ContextPtr& ctx, CUevent event, const char* label) {
    const EventPtr e = world().events.find(event);
    if (e == nullptr || e->ctx != owner_of(ctx)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    SIM_TRY(ctx->fault());
    pass_free_gate(ctx);
    SIM_TRY(forbid_context_captures(ctx));
    e->capture = nullptr;
    e->op = world().all_of(ctx, label);
    return CUDA_SUCCESS;
}

CUresult wait(const ContextPtr& ctx, CUevent event) {
    const EventPtr e = world().events.find(event);
    if (e == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    SIM_TRY(ctx->fault());
    SIM_TRY(forbid_context_captures(ctx));
    if (e->op != nullptr) {
        world().add_barrier(ctx, e->op);
    }
    return CUDA_SUCCESS;
}

} // namespace

SIM_EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event) {
    SIM_ENTER(cuCtxRecordEvent);
    ContextPtr ctx;
    SIM_TRY(context_with_events(handle, &ctx));
    return record(ctx, event, "cuCtxRecordEvent");
}

SIM_EXPORT CUresult cuCtxWaitEvent(CUcontext handle, CUevent event) {
    SIM_ENTER(cuCtxWaitEvent);
    ContextPtr ctx;
    SIM_TRY(context_with_events(handle, &ctx));
    return wait(ctx, event);
}

SIM_EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
    SIM_ENTER(cuGreenCtxRecordEvent);
    ContextPtr ctx;
    SIM_TRY(green_context(handle, &ctx));
    return record(ctx, event, "cuGreenCtxRecordEvent");
}

SIM_EXPORT CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
    SIM_ENTER(cuGreenCtxWaitEvent);
    ContextPtr ctx;
    SIM_TRY(green_context(handle, &ctx));
    return wait(ctx, event);
}
