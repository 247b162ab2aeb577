// The life of contexts. Their pools are hidden before the driver is asked to end them, so that no
// other thread meets an address of a dead context that the driver has already given to someone
// else.
#include "shim/captures.h"
#include "shim/default_pools.h"
#include "shim/recorded_calls.h"
#include "shim/room.h"

namespace cachealloc::shim {

namespace {

CUresult created(CUresult result, const CUcontext* context, CUdevice device) {
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) state->contexts.born(*context, device, false);
    return result;
}

void gone(Process& state, const std::vector<CUcontext>& contexts) {
    record_contexts_ended(state, contexts);
    for (const CUcontext context : contexts) {
        Captures::context_gone(context);
        state.peers.ended(context);
    }
}

template <class Call>
CUresult end_context(CUcontext context, Call call) {
    Process* const state = process();
    if (state == nullptr || context == nullptr) return call();
    const RecordedCall recorded(recorder_of(state), trace::CallName::context_end);
    const auto pools = state->contexts.ending(context, 0);
    const CUresult result = call();
    if (result == CUDA_SUCCESS) {
        gone(*state, state->contexts.ended(pools, context, 0));
    } else {
        state->contexts.survived(pools);
    }
    return result;
}

// A release or a reset of a device's primary context: whether it ended is asked afterwards.
template <class Call>
CUresult end_primary(CUdevice device, bool always_ends, Call call) {
    Process* const state = process();
    if (state == nullptr) return call();
    const RecordedCall recorded(recorder_of(state), trace::CallName::context_end);
    const auto pools = state->contexts.ending(nullptr, device);
    const CUresult result = call();
    unsigned int flags = 0;
    int active = 0;
    const bool lives_on =
        real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
    if (result == CUDA_SUCCESS && (always_ends || !lives_on)) {
        gone(*state, state->contexts.ended(pools, nullptr, device));
    } else {
        state->contexts.survived(pools);
    }
    return result;
}

} // namespace

CUresult hook_cuInit(unsigned int flags) {
    process(); // options are parsed, and complained about, at the first CUDA call
    return real.cuInit(flags);
}

CUresult hook_cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
    return created(with_room([&] { return real.cuCtxCreate(context, flags, device); }), context,
                   device);
}

CUresult hook_cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
    return created(with_room([&] { return real.cuCtxCreate_v2(context, flags, device); }), context,
                   device);
}

CUresult hook_cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params, int count,
                             unsigned int flags, CUdevice device) {
    return created(
        with_room([&] { return real.cuCtxCreate_v3(context, params, count, flags, device); }),
        context, device);
}

CUresult hook_cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned int flags,
                             CUdevice device) {
    return created(with_room([&] { return real.cuCtxCreate_v4(context, params, flags, device); }),
                   context, device);
}

CUresult hook_cuCtxDestroy(CUcontext context) {
    return end_context(context, [&] { return real.cuCtxDestroy(context); });
}

CUresult hook_cuCtxDestroy_v2(CUcontext context) {
    return end_context(context, [&] { return real.cuCtxDestroy_v2(context); });
}

CUresult hook_cuCtxDetach(CUcontext context) {
    return end_context(context, [&] { return real.cuCtxDetach(context); });
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    const CUresult result = real.cuDevicePrimaryCtxRetain(context, device);
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) {
        state->contexts.born(*context, device, true);
        primary_context_lives(*state, device, *context);
    }
    return result;
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice device) {
    return end_primary(device, false, [&] { return real.cuDevicePrimaryCtxRelease(device); });
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return end_primary(device, false, [&] { return real.cuDevicePrimaryCtxRelease_v2(device); });
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice device) {
    return end_primary(device, true, [&] { return real.cuDevicePrimaryCtxReset(device); });
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return end_primary(device, true, [&] { return real.cuDevicePrimaryCtxReset_v2(device); });
}

CUresult hook_cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc resources, CUdevice device,
                               unsigned int flags) {
    const CUresult result = real.cuGreenCtxCreate(green, resources, device, flags);
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) state->contexts.note_green(*green, device);
    return result;
}

// It releases its primary context, and may be the last to do so.
CUresult hook_cuGreenCtxDestroy(CUgreenCtx green) {
    Process* const state = process();
    CUdevice device = 0;
    if (state == nullptr || !state->contexts.device_of(green, &device)) {
        return real.cuGreenCtxDestroy(green);
    }
    const CUresult result =
        end_primary(device, false, [&] { return real.cuGreenCtxDestroy(green); });
    if (result == CUDA_SUCCESS) {
        const CUcontext converted = state->contexts.forget_green(green);
        if (converted != nullptr) Captures::context_gone(converted);
    }
    return result;
}

CUresult hook_cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
    const CUresult result = real.cuCtxFromGreenCtx(context, green);
    Process* const state = process();
    if (result != CUDA_SUCCESS || state == nullptr) return result;
    state->total_order.leave(); // it has a legacy stream of its own
    state->contexts.note_converted(*context, green);
    return result;
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    Process* const state = process();
    if (state != nullptr) state->contexts.enter_finished_everywhere(true);
    const CUresult result = real.cuCtxEnablePeerAccess(peer, flags);
    if (result == CUDA_SUCCESS && state != nullptr) {
        const CUresult reachable = state->contexts.peer_access_given(peer);
        if (reachable != CUDA_SUCCESS) real.cuCtxDisablePeerAccess(peer);
        return reachable;
    }
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED && claim_peer_access(peer)) {
        return CUDA_SUCCESS;
    }
    return result;
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peer) {
    const CUresult result = real.cuCtxDisablePeerAccess(peer);
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) state->contexts.peer_access_taken(peer);
    return result;
}

} // namespace cachealloc::shim
