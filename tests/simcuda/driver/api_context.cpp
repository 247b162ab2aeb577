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

ContextPtr make_context(CUdevice dev, unsigned flags, bool primary) {
    World& w = world();
    auto ctx = std::make_shared<Context>();
    ctx->id = ++w.next_context;
    ctx->device = dev;
    ctx->flags = flags;
    ctx->primary = primary;
    w.dead_contexts.erase(w.contexts.add(ctx));
    ctx->legacy = w.make_stream(ctx, StreamKind::legacy, 0, 0);
    return ctx;
}

// The end of a context: its work ends first, then its streams, events and memory go.
void destroy_context(const ContextPtr& ctx) {
    World& w = world();
    w.wait(w.all_of(ctx, "the end of a context"));
    ctx->alive = false;
    for (const auto& capture : std::set<CapturePtr>(ctx->captures)) {
        capture->invalidated = true;
    }
    std::vector<std::shared_ptr<Allocation>> owned;
    for (const auto& [base, a] : w.map.all()) {
        if (a->ctx == ctx && a->kind != Memory::pool && a->kind != Memory::mapped) {
            owned.push_back(a);
        }
    }
    for (const auto& a : owned) {
        drop_allocation(a);
    }
    for (const auto& s : std::vector<StreamPtr>(ctx->streams)) {
        if (s->handle != nullptr) {
            w.streams.remove(s->handle);
        }
        w.retire_stream(s);
    }
    w.contexts.remove(ctx->handle);
    w.dead_contexts[ctx->handle] = ctx;
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

CUresult release_primary(CUdevice dev) {
    Device* d = device_of(dev);
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (d->retained == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--d->retained == 0 && d->primary != nullptr) {
        const ContextPtr ctx = d->primary;
        d->primary = nullptr;
        destroy_context(ctx);
    }
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
    if (ctx == nullptr || ctx->primary) {
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
    return ctx->fault;
}

} // namespace

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice dev) {
    SIM_ENTER_STATE(cuDevicePrimaryCtxRetain);
    Device* d = device_of(dev);
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (d->primary == nullptr) {
        d->primary = make_context(dev, d->primary_flags, true);
    }
    ++d->retained;
    *out = d->primary->handle;
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
    const ContextPtr other = World::get().contexts.find(peer);
    if (other == nullptr || other == ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return ctx->peers.insert(other->id).second ? CUDA_SUCCESS
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
    return ctx->peers.erase(other->id) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
