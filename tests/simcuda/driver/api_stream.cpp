// Streams and events.
#include <algorithm>

#include "guard.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

CUresult create_stream(CUstream* out, unsigned flags, int priority) {
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pass_free_gate(ctx);
    const StreamPtr s =
        world().make_stream(ctx, StreamKind::created, flags, std::clamp(priority, -5, 0));
    *out = world().streams.add(s);
    return CUDA_SUCCESS;
}

// Returns at once; the stream's work goes on.
CUresult destroy_stream(CUstream handle) {
    const StreamPtr s = world().streams.find(handle);
    if (s == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!s->ctx->alive) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    pass_free_gate(s->ctx);
    if (s->capture != nullptr) {
        invalidate(s->capture);
        const CapturePtr capture = s->capture;
        if (capture->origin == s.get()) {
            leave_capture(capture);
        } else {
            capture->streams.erase(s.get());
            s->capture = nullptr;
        }
    }
    world().streams.remove(handle);
    world().retire_stream(s);
    return CUDA_SUCCESS;
}

CUresult query(bool per_thread, CUstream handle) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    SIM_TRY(forbid_while_capturing(true));
    if (s->capture != nullptr) {
        invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    SIM_TRY(forbid_implicit(s));
    world().catch_up();
    SIM_TRY(s->ctx->fault());
    if (!World::idle(s)) {
        return CUDA_ERROR_NOT_READY;
    }
    if (s->last != nullptr) {
        world().host_learns(s->last->clock);
    }
    return CUDA_SUCCESS;
}

CUresult synchronize(bool per_thread, CUstream handle) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    SIM_TRY(forbid_while_capturing(true));
    if (s->capture != nullptr) {
        invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (s->kind == StreamKind::legacy) {
        // Waiting for the legacy stream means waiting for the blocking streams it waits for.
        OpPtr op;
        Work w;
        w.label = "cuStreamSynchronize";
        w.duration = 0;
        w.passes_free = true;
        SIM_TRY(submit(s, std::move(w), &op));
        world().wait(op);
    } else {
        world().wait(s->last);
    }
    return s->ctx->fault();
}

CUresult wait_event(bool per_thread, CUstream handle, CUevent event, unsigned flags) {
    World& w = world();
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    const EventPtr e = w.events.find(event);
    if (e == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (e->capture != nullptr) {
        const CapturePtr capture = e->capture;
        if (std::find(w.captures.begin(), w.captures.end(), capture) == w.captures.end()) {
            return CUDA_ERROR_INVALID_VALUE; // that capture is over
        }
        if (capture->invalidated) {
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        if (s->kind == StreamKind::legacy) {
            invalidate(capture);
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        if (s->capture != nullptr && s->capture != capture) {
            invalidate(s->capture);
            invalidate(capture);
            return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        }
        if (s->capture == nullptr) {
            // The capture spreads to this stream.
            s->capture = capture;
            s->tail.clear();
            capture->streams.insert(s.get());
            s->ctx->captures.insert(capture);
        }
        for (const auto& node : e->nodes) {
            if (std::find(s->tail.begin(), s->tail.end(), node) == s->tail.end()) {
                s->tail.push_back(node);
            }
        }
        return CUDA_SUCCESS;
    }
    if (s->capture != nullptr) {
        if (s->capture->invalidated) {
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
            NodePtr node;
            SIM_TRY(add_node(s, Work{}, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &node));
            node->event = e;
            return CUDA_SUCCESS;
        }
        if (e->op == nullptr) {
            return CUDA_SUCCESS;
        }
        invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (e->op == nullptr) {
        return CUDA_SUCCESS;
    }
    Work work;
    work.label = "cuStreamWaitEvent";
    work.duration = 0;
    w.submit(s, std::move(work), e->op);
    return CUDA_SUCCESS;
}

CUresult stream_flags(bool per_thread, CUstream handle, unsigned* flags) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    *flags = s->flags;
    return CUDA_SUCCESS;
}

CUresult stream_priority(bool per_thread, CUstream handle, int* priority) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    *priority = s->priority;
    return CUDA_SUCCESS;
}

CUresult stream_id(bool per_thread, CUstream handle, unsigned long long* id) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    *id = s->serial;
    return CUDA_SUCCESS;
}

CUresult stream_ctx(bool per_thread, CUstream handle, CUcontext* ctx) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    *ctx = s->ctx->handle;
    return CUDA_SUCCESS;
}

CUresult stream_ctx_green(bool per_thread, CUstream handle, CUcontext* ctx, CUgreenCtx* green) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    *ctx = owner_of(s->ctx)->handle;
    if (green != nullptr) {
        *green = s->ctx->green;
    }
    return CUDA_SUCCESS;
}

CUresult stream_device(bool per_thread, CUstream handle, CUdevice* dev) {
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    *dev = s->ctx->device;
    return CUDA_SUCCESS;
}

CUresult record(bool per_thread, CUevent event, CUstream handle, unsigned flags) {
    World& w = world();
    StreamPtr s;
    SIM_TRY(stream_of(handle, per_thread, &s));
    const EventPtr e = w.events.find(event);
    if (e == nullptr || e->ctx != owner_of(s->ctx)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (s->capture != nullptr && (flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
        NodePtr node;
        SIM_TRY(add_node(s, Work{}, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &node));
        node->event = e;
        return CUDA_SUCCESS;
    }
    if (s->capture != nullptr) {
        if (s->capture->invalidated) {
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        e->capture = s->capture;
        e->nodes = s->tail;
        e->op = nullptr;
        return CUDA_SUCCESS;
    }
    SIM_TRY(forbid_implicit(s));
    pass_free_gate(s->ctx);
    Work work;
    work.label = "cuEventRecord";
    work.duration = 0;
    e->capture = nullptr;
    e->nodes.clear();
    e->op = w.submit(s, std::move(work));
    return CUDA_SUCCESS;
}

CUresult record_plain(bool per_thread, CUevent event, CUstream handle) {
    return record(per_thread, event, handle, 0);
}

// Asking about an event of a capture invalidates that capture.
CUresult not_captured(const EventPtr& e) {
    if (!e->ctx->alive) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (e->capture == nullptr) {
        return CUDA_SUCCESS;
    }
    const auto& open = world().captures;
    if (std::find(open.begin(), open.end(), e->capture) == open.end()) {
        return CUDA_ERROR_INVALID_VALUE; // that capture is over
    }
    invalidate(e->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult destroy_event(CUevent handle) {
    const EventPtr e = world().events.find(handle);
    if (e == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    pass_free_gate(e->ctx);
    return world().events.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult elapsed(float* ms, CUevent from, CUevent to) {
    const EventPtr a = world().events.find(from);
    const EventPtr b = world().events.find(to);
    if (a == nullptr || b == nullptr || a->op == nullptr || b->op == nullptr ||
        ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    world().catch_up();
    if (!a->op->done || !b->op->done) {
        return CUDA_ERROR_NOT_READY;
    }
    *ms = static_cast<float>(static_cast<double>(b->op->finish) -
                             static_cast<double>(a->op->finish)) *
          1e-6F;
    return CUDA_SUCCESS;
}

} // namespace

SIM_EXPORT CUresult cuStreamCreate(CUstream* s, unsigned int flags) {
    SIM_ENTER(cuStreamCreate);
    return create_stream(s, flags, 0);
}
SIM_EXPORT CUresult cuStreamCreateWithPriority(CUstream* s, unsigned int flags, int priority) {
    SIM_ENTER(cuStreamCreateWithPriority);
    return create_stream(s, flags, priority);
}
SIM_EXPORT CUresult cuStreamDestroy(CUstream s) {
    SIM_ENTER(cuStreamDestroy);
    return destroy_stream(s);
}
SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
    SIM_ENTER(cuStreamDestroy_v2);
    return destroy_stream(s);
}
SIM_TWINS(cuStreamQuery, cuStreamQuery_ptsz, query, (CUstream s), s)
SIM_TWINS(cuStreamSynchronize, cuStreamSynchronize_ptsz, synchronize, (CUstream s), s)
SIM_TWINS(cuStreamWaitEvent, cuStreamWaitEvent_ptsz, wait_event,
          (CUstream s, CUevent e, unsigned int flags), s, e, flags)
SIM_TWINS(cuStreamGetFlags, cuStreamGetFlags_ptsz, stream_flags, (CUstream s, unsigned int* f), s,
          f)
SIM_TWINS(cuStreamGetPriority, cuStreamGetPriority_ptsz, stream_priority, (CUstream s, int* p), s,
          p)
SIM_TWINS(cuStreamGetId, cuStreamGetId_ptsz, stream_id, (CUstream s, unsigned long long* id), s, id)
SIM_TWINS(cuStreamGetCtx, cuStreamGetCtx_ptsz, stream_ctx, (CUstream s, CUcontext* ctx), s, ctx)
SIM_TWINS(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz, stream_ctx_green,
          (CUstream s, CUcontext* ctx, CUgreenCtx* green), s, ctx, green)
SIM_TWINS(cuStreamGetDevice, cuStreamGetDevice_ptsz, stream_device, (CUstream s, CUdevice* d), s, d)

SIM_EXPORT CUresult cuEventCreate(CUevent* out, unsigned int flags) {
    SIM_ENTER(cuEventCreate);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    if (out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pass_free_gate(ctx);
    const auto e = std::make_shared<Event>();
    e->ctx = owner_of(ctx);
    e->flags = flags;
    *out = world().events.add(e);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuEventDestroy(CUevent e) {
    SIM_ENTER(cuEventDestroy);
    return destroy_event(e);
}
SIM_EXPORT CUresult cuEventDestroy_v2(CUevent e) {
    SIM_ENTER(cuEventDestroy_v2);
    return destroy_event(e);
}
SIM_TWINS(cuEventRecord, cuEventRecord_ptsz, record_plain, (CUevent e, CUstream s), e, s)
SIM_TWINS(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz, record,
          (CUevent e, CUstream s, unsigned int flags), e, s, flags)

SIM_EXPORT CUresult cuEventQuery(CUevent handle) {
    SIM_ENTER(cuEventQuery);
    const EventPtr e = world().events.find(handle);
    if (e == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    SIM_TRY(forbid_while_capturing(true));
    SIM_TRY(not_captured(e));
    world().catch_up();
    SIM_TRY(e->ctx->fault());
    if (e->op == nullptr) {
        return CUDA_SUCCESS;
    }
    if (!e->op->done) {
        return CUDA_ERROR_NOT_READY;
    }
    world().host_learns(e->op->clock);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventSynchronize(CUevent handle) {
    SIM_ENTER(cuEventSynchronize);
    const EventPtr e = world().events.find(handle);
    if (e == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    SIM_TRY(forbid_while_capturing(true));
    SIM_TRY(not_captured(e));
    world().wait(e->op);
    return e->ctx->fault();
}

SIM_EXPORT CUresult cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
    SIM_ENTER(cuEventElapsedTime);
    return elapsed(ms, from, to);
}
SIM_EXPORT CUresult cuEventElapsedTime_v2(float* ms, CUevent from, CUevent to) {
    SIM_ENTER(cuEventElapsedTime_v2);
    return elapsed(ms, from, to);
}
