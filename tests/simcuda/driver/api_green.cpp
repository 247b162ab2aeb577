// Green contexts: a share of a device's processors with streams of its own. Memory belongs to the
// device's primary context, which each of them retains.
#include <algorithm>

#include "guard.h"

using namespace simcuda;

namespace {

constexpr unsigned kProcessors = 132;
constexpr unsigned kSmallest = 8; // processors of a share, and the step of its size

World& world() {
    return World::get();
}

bool device_exists(CUdevice dev) {
    return dev >= 0 && static_cast<std::size_t>(dev) < world().devices.size();
}

// Which device processors belong to is remembered in the part of the resource that is nobody's.
CUdevResource processors(CUdevice dev, unsigned count) {
    CUdevResource r{};
    r.type = CU_DEV_RESOURCE_TYPE_SM;
    r._internal_padding[0] = static_cast<unsigned char>(dev);
    r.sm.smCount = count;
    r.sm.minSmPartitionSize = kSmallest;
    r.sm.smCoscheduledAlignment = kSmallest;
    return r;
}

CUresult resource_of(CUdevice dev, CUdevResource* out, CUdevResourceType type) {
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!device_exists(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    *out = processors(dev, kProcessors);
    return CUDA_SUCCESS;
}

// A descriptor is its device, counted from 1.
CUdevResourceDesc descriptor(CUdevice dev) {
    return reinterpret_cast<CUdevResourceDesc>(static_cast<std::uintptr_t>(dev) + 1);
}

CUresult green_of_stream(CUstream stream, CUgreenCtx* out) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, false, &s));
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = s->ctx->green;
    return CUDA_SUCCESS;
}

} // namespace

CUresult simcuda::green_context(CUgreenCtx handle, ContextPtr* ctx) {
    const auto it = World::get().greens.find(handle);
    if (it == World::get().greens.end()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ctx = it->second;
    return (*ctx)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

SIM_EXPORT CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource* out,
                                           CUdevResourceType type) {
    SIM_ENTER(cuDeviceGetDevResource);
    return resource_of(dev, out, type);
}
SIM_EXPORT CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* out,
                                        CUdevResourceType type) {
    SIM_ENTER(cuCtxGetDevResource);
    ContextPtr ctx;
    SIM_TRY(context_of(handle, &ctx));
    return resource_of(ctx->device, out, type);
}
SIM_EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* out,
                                             CUdevResourceType type) {
    SIM_ENTER(cuGreenCtxGetDevResource);
    ContextPtr ctx;
    SIM_TRY(green_context(handle, &ctx));
    return resource_of(ctx->device, out, type);
}

SIM_EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups,
                                                const CUdevResource* input,
                                                CUdevResource* remaining, unsigned int flags,
                                                unsigned int min_count) {
    SIM_ENTER(cuDevSmResourceSplitByCount);
    if (groups == nullptr || input == nullptr || flags > 3) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    if (min_count > input->sm.smCount) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const unsigned each = std::max(kSmallest, (min_count + kSmallest - 1) / kSmallest * kSmallest);
    const unsigned most = input->sm.smCount / each;
    const CUdevice dev = input->_internal_padding[0];
    *groups = result == nullptr ? most : std::min(*groups, most);
    for (unsigned i = 0; result != nullptr && i < *groups; ++i) {
        result[i] = processors(dev, each);
    }
    if (remaining != nullptr) {
        *remaining = processors(dev, input->sm.smCount - *groups * each);
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources,
                                              unsigned int count) {
    SIM_ENTER(cuDevResourceGenerateDesc);
    if (out == nullptr || resources == nullptr || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUdevice dev = resources[0]._internal_padding[0];
    for (unsigned i = 0; i < count; ++i) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) {
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        }
        if (resources[i]._internal_padding[0] != dev) {
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        }
    }
    *out = descriptor(dev);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc desc, CUdevice dev,
                                     unsigned int flags) {
    SIM_ENTER_STATE(cuGreenCtxCreate);
    if (out == nullptr || desc == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!device_exists(dev)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (desc != descriptor(dev)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ContextPtr primary;
    SIM_TRY(retain_primary(dev, &primary));
    const ContextPtr ctx = make_context(dev, 0, false);
    ctx->owner = primary;
    ctx->green = reinterpret_cast<CUgreenCtx>(ctx.get());
    primary->greens.push_back(ctx);
    world().greens[ctx->green] = ctx; // for ever: a destroyed one is told from a wild pointer
    *out = ctx->green;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    SIM_ENTER_STATE(cuGreenCtxDestroy);
    ContextPtr ctx;
    SIM_TRY(green_context(handle, &ctx));
    destroy_context(ctx);
    auto& stack = self().contexts;
    if (!stack.empty() && stack.back() == ctx) {
        stack.pop_back();
    }
    return release_primary(ctx->device);
}

SIM_EXPORT CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
    SIM_ENTER_STATE(cuCtxFromGreenCtx);
    ContextPtr ctx;
    SIM_TRY(green_context(handle, &ctx));
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = ctx->handle;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
    SIM_ENTER_STATE(cuGreenCtxGetId);
    ContextPtr ctx;
    SIM_TRY(green_context(handle, &ctx));
    if (id == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *id = ctx->id;
    return CUDA_SUCCESS;
}

// Whatever context is current.
SIM_EXPORT CUresult cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx handle, unsigned int flags,
                                           int priority) {
    SIM_ENTER(cuGreenCtxStreamCreate);
    ContextPtr ctx;
    SIM_TRY(green_context(handle, &ctx));
    if (out == nullptr || flags != CU_STREAM_NON_BLOCKING) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pass_free_gate(ctx);
    const StreamPtr s =
        world().make_stream(ctx, StreamKind::created, flags, std::clamp(priority, -5, 0));
    *out = world().streams.add(s);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* out) {
    SIM_ENTER(cuStreamGetGreenCtx);
    return green_of_stream(stream, out);
}
