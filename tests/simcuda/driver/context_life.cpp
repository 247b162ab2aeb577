// How contexts come to life and end.
#include <algorithm>

#include "guard.h"

namespace simcuda {

namespace {

World& world() {
    return World::get();
}

Device* device_of(CUdevice dev) {
    return dev >= 0 && static_cast<std::size_t>(dev) < world().devices.size()
               ? world().devices[static_cast<std::size_t>(dev)].get()
               : nullptr;
}

// A capture that began on a stream of the context ends with it. One that only spread to it goes on,
// invalid, with the streams that it has elsewhere.
void end_captures(const ContextPtr& ctx) {
    for (const auto& capture : std::set<CapturePtr>(ctx->captures)) {
        if (capture->origin->ctx == ctx) {
            leave_capture(capture);
            continue;
        }
        invalidate(capture);
        for (const auto& s : ctx->streams) {
            if (s->capture == capture) {
                capture->streams.erase(s.get());
                s->capture = nullptr;
                s->tail.clear();
            }
        }
    }
    ctx->captures.clear();
}

} // namespace

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

void destroy_context(const ContextPtr& ctx) {
    World& w = world();
    for (const auto& green : std::vector<ContextPtr>(ctx->greens)) {
        destroy_context(green);
    }
    w.wait(w.all_of(ctx, "the end of a context"));
    ctx->alive = false;
    end_captures(ctx);
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
        // Streams of a green context stay as handles that say what became of it.
        if (s->handle != nullptr && ctx->green == nullptr) {
            w.streams.remove(s->handle);
        }
        w.retire_stream(s);
    }
    if (ctx->green != nullptr) {
        join(ctx->owner->retired, ctx->retired);
        auto& siblings = ctx->owner->greens;
        siblings.erase(std::remove(siblings.begin(), siblings.end(), ctx), siblings.end());
    }
    w.contexts.remove(ctx->handle);
    w.dead_contexts[ctx->handle] = ctx;
}

CUresult retain_primary(CUdevice dev, ContextPtr* ctx) {
    Device* d = device_of(dev);
    if (d == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (d->primary == nullptr) {
        d->primary = make_context(dev, d->primary_flags, true);
    }
    ++d->retained;
    *ctx = d->primary;
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

} // namespace simcuda
