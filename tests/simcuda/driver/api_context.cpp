// Contexts: primary and created ones, the per-thread stack, peers, work of a whole context.
#include <algorithm>

#include "guard.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

Device* device_of(CUdevice dev) {
    return dev >= 0 && static_cast<std::size_t>(dev) < world().devices.size()
               ? world().devices[static_cast<std::size_t>(dev)].get()
               : nullptr;
}

CUresult create_context(CUcontext* out, unsigned flags, CUdevice dev) {
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device_of(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    const ContextPtr ctx = make_context(dev, flags, false);
    self().contexts.push_back(ctx);
    *out = ctx->handle;
    return CUDA_SUCCESS;
}

CUresult reset_primary(CUdevice dev) {
    Device* d = device_of(dev);
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (d->primary != nullptr) {
        const ContextPtr ctx = d->primary;
        d->primary = nullptr;
        destroy_context(ctx);
    }
    return CUDA_SUCCESS;
}

CUresult set_primary_flags(CUdevice dev, unsigned flags) {
    Device* d = device_of(dev);
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    d->primary_flags = flags;
    return CUDA_SUCCESS;
}

CUresult destroy_created(CUcontext handle) {
    const ContextPtr ctx = world().contexts.find(handle);
    if (ctx == nullptr || ctx->primary || ctx->green != nullptr) {
        return handle == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    }
    destroy_context(ctx);
    auto& stack = self().contexts;
    if (!stack.empty() && stack.back() == ctx) {
        stack.pop_back();
    }
    return CUDA_SUCCESS;
}

CUresult push(CUcontext handle) {
    ContextPtr ctx = world().contexts.find(handle);
    if (ctx == nullptr) {
        // A dead context can be made current, as measured; calls then say that it is dead.
        const auto dead = world().dead_contexts.find(handle);
        if (dead == world().dead_contexts.end()) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        ctx = dead->second;
    }
    self().contexts.push_back(ctx);
    return CUDA_SUCCESS;
}

CUresult pop(CUcontext* handle) {
    auto& stack = self().contexts;
    if (stack.empty()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (handle != nullptr) {
        *handle = stack.back() == nullptr ? nullptr : stack.back()->handle;
    }
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult synchronize(const ContextPtr& ctx) {
    SIM_TRY(forbid_while_capturing(true));
    SIM_TRY(forbid_context_captures(ctx));
    world().wait(world().all_of(ctx, "cuCtxSynchronize"));
    return ctx->fault();
}

} // namespace

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice dev) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxRetain);
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ContextPtr ctx;
    SIM_TRY(retain_primary(dev, &ctx));
    *out = ctx->handle;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxRelease);
    return release_primary(dev);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxRelease_v2);
    return release_primary(dev);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxReset);
    return reset_primary(dev);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxReset_v2);
    return reset_primary(dev);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxSetFlags);
    return set_primary_flags(dev, flags);
}
SIM_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxSetFlags_v2);
    return set_primary_flags(dev, flags);
}

SIM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxGetState);
    const Device* d = device_of(dev);
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (flags == nullptr || active == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = d->primary_flags;
    *active = d->primary != nullptr ? 1 : 0;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice dev) {
    SIM_ENTER(cuCtxCreate_v2);
    return create_context(out, flags, dev);
}
SIM_EXPORT CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int, unsigned int flags,
                                   CUdevice dev) {
    SIM_ENTER(cuCtxCreate_v3);
    return create_context(out, flags, dev);
}
SIM_EXPORT CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned int flags,
                                   CUdevice dev) {
    SIM_ENTER(cuCtxCreate_v4);
    return create_context(out, flags, dev);
}
SIM_EXPORT CUresult cuCtxDestroy(CUcontext ctx) {
    SIM_ENTER_STATE(cuCtxDestroy);
    return destroy_created(ctx);
}
SIM_EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx) {
    SIM_ENTER_STATE(cuCtxDestroy_v2);
    return destroy_created(ctx);
}
SIM_EXPORT CUresult cuCtxPushCurrent(CUcontext ctx) {
    SIM_ENTER_STATE(cuCtxPushCurrent);
    return push(ctx);
}
SIM_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    SIM_ENTER_STATE(cuCtxPushCurrent_v2);
    return push(ctx);
}
SIM_EXPORT CUresult cuCtxPopCurrent(CUcontext* ctx) {
    SIM_ENTER_STATE(cuCtxPopCurrent);
    return pop(ctx);
}
SIM_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* ctx) {
    SIM_ENTER_STATE(cuCtxPopCurrent_v2);
    return pop(ctx);
}

SIM_EXPORT CUresult cuCtxSetCurrent(CUcontext handle) {
    SIM_ENTER_STATE(cuCtxSetCurrent);
    auto& stack = self().contexts;
    if (handle == nullptr) {
        if (!stack.empty()) {
            stack.pop_back();
        }
        return CUDA_SUCCESS;
    }
    const ContextPtr ctx = World::get().contexts.find(handle);
    if (ctx == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (stack.empty()) {
        stack.push_back(ctx);
    } else {
        stack.back() = ctx;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetCurrent(CUcontext* handle) {
    SIM_ENTER_STATE(cuCtxGetCurrent);
    if (handle == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const ContextPtr ctx = self().current();
    *handle = ctx == nullptr ? nullptr : ctx->handle;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetDevice(CUdevice* dev) {
    SIM_ENTER_STATE(cuCtxGetDevice);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    *dev = ctx->device;
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuCtxGetDevice_v2(CUdevice* dev, CUcontext handle) {
    SIM_ENTER_STATE(cuCtxGetDevice_v2);
    ContextPtr ctx;
    SIM_TRY(context_of(handle, &ctx));
    *dev = ctx->device;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
    SIM_ENTER_STATE(cuCtxGetId);
    ContextPtr ctx;
    SIM_TRY(context_of(handle, &ctx));
    if (id == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *id = ctx->id;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetFlags(unsigned int* flags) {
    SIM_ENTER(cuCtxGetFlags);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
    SIM_ENTER_STATE(cuCtxGetApiVersion);
    ContextPtr ctx;
    SIM_TRY(context_of(handle, &ctx));
    *version = 3020;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    SIM_ENTER(cuCtxGetStreamPriorityRange);
    if (least != nullptr) {
        *least = 0;
    }
    if (greatest != nullptr) {
        *greatest = -5;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxSynchronize() {
    SIM_ENTER(cuCtxSynchronize);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    return synchronize(ctx);
}
SIM_EXPORT CUresult cuCtxSynchronize_v2(CUcontext handle) {
    SIM_ENTER(cuCtxSynchronize_v2);
    ContextPtr ctx;
    SIM_TRY(context_of(handle, &ctx));
    return synchronize(ctx);
}

SIM_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    SIM_ENTER(cuCtxEnablePeerAccess);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    const ContextPtr found = World::get().contexts.find(peer);
    if (found == nullptr || owner_of(found) == owner_of(ctx)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    const ContextPtr other = owner_of(found);
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return owner_of(ctx)->peers.insert(other->id).second ? CUDA_SUCCESS
                                                         : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SIM_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    SIM_ENTER(cuCtxDisablePeerAccess);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    const ContextPtr other = World::get().contexts.find(peer);
    if (other == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return owner_of(ctx)->peers.erase(owner_of(other)->id) != 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
