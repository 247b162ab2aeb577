#include "guard.h"

#include <cstring>

namespace simcuda {

Guard::Guard(Entry e, bool strict) {
    World& w = World::get();
    if (w.forked) {
        early_ = CUDA_ERROR_NOT_INITIALIZED;  // without the lock: nobody may ever release it here
        return;
    }
    ThreadState& me = self();
    lock_ = Lock(w.mutex);
    me.lock = &lock_;
    EntryRow& r = row(e);
    ++r.calls;
    if (w.ended) {
        early_ = CUDA_ERROR_DEINITIALIZED;
        return;
    }
    if (r.fail_in > 0 && --r.fail_in == 0) {
        early_ = r.fail_with;
        if (--r.fail_count > 0) {
            r.fail_in = 1;
        }
        return;
    }
    if (strict && me.in_callback) {
        early_ = CUDA_ERROR_NOT_PERMITTED;
        return;
    }
    if (strict && !w.initialised) {
        early_ = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
    w.tick();
    if (strict) {
        if (const ContextPtr ctx = me.current()) {
            early_ = ctx->fault;
        }
    }
}

Guard::~Guard() {
    if (lock_.owns_lock()) {
        self().lock = nullptr;
    }
}

CUresult current_context(ContextPtr* ctx) {
    *ctx = self().current();
    if (*ctx == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!(*ctx)->alive && (*ctx)->primary) {
        // A primary context that was reset and retained again goes on under its old handle.
        const ContextPtr again =
            World::get().devices[static_cast<std::size_t>((*ctx)->device)]->primary;
        if (again != nullptr) {
            self().contexts.back() = *ctx = again;
        }
    }
    return (*ctx)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_of(CUcontext handle, ContextPtr* ctx) {
    if (handle == nullptr) {
        return current_context(ctx);
    }
    *ctx = World::get().contexts.find(handle);
    return *ctx == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult stream_of(CUstream handle, bool per_thread, StreamPtr* s) {
    World& w = World::get();
    const bool thread_stream = handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread);
    if (thread_stream || handle == nullptr || handle == CU_STREAM_LEGACY) {
        ContextPtr ctx;
        SIM_TRY(current_context(&ctx));
        *s = thread_stream ? w.per_thread_stream(ctx) : ctx->legacy;
        return CUDA_SUCCESS;
    }
    *s = w.streams.find(handle);
    return *s == nullptr ? CUDA_ERROR_INVALID_HANDLE : (*s)->ctx->fault;
}

void pass_free_gate(const ContextPtr& ctx) {
    World::get().wait_for([&] { return ctx->freeing == 0; });
}

CUresult submit(const StreamPtr& s, Work work, OpPtr* op) {
    World& w = World::get();
    if (s->capture == nullptr && !work.passes_free) {
        pass_free_gate(s->ctx);
    }
    if (s->capture != nullptr) {
        const CUgraphNodeType type = node_type(work);
        return add_node(s, std::move(work), type);
    }
    if (s->kind == StreamKind::legacy) {
        // The legacy stream would depend on what only exists in a capture.
        for (const auto& capture : std::set<CapturePtr>(s->ctx->captures)) {
            for (const Stream* captured : capture->streams) {
                if (captured->blocking()) {
                    invalidate(capture);
                    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                }
            }
        }
    }
    const OpPtr submitted = w.submit(s, std::move(work));
    if (op != nullptr) {
        *op = submitted;
    }
    return CUDA_SUCCESS;
}

CUresult submit_and_wait(const StreamPtr& s, Work work) {
    SIM_TRY(forbid_while_capturing(true));
    OpPtr op;
    SIM_TRY(submit(s, std::move(work), &op));
    World::get().wait(op);
    return s->ctx->fault;
}

void wait_as_free(const ContextPtr& ctx) {
    World& w = World::get();
    pass_free_gate(ctx);
    ++ctx->freeing;
    w.wait(w.all_of(ctx, "the wait of cuMemFree"));
    --ctx->freeing;
    w.wake();
}

void check_release(const Allocation& a, const char* by) {
    World& w = World::get();
    const auto it = w.live.lower_bound(a.base);
    auto inside = it != w.live.end() && it->first < a.end();
    if (it != w.live.begin()) {
        const auto before = std::prev(it);
        inside = inside || before->first + before->second > a.base;
    }
    if (inside) {
        w.error(std::string(by) + ": segment freed under live blocks: " + std::to_string(a.base) +
                ", " + std::to_string(a.size) + " bytes");
    }
    if (const OpPtr op = w.pending_user(a.base, a.size)) {
        w.error(std::string(by) + ": memory freed that " + *op->label + " (#" +
                std::to_string(op->id) + ") still uses");
        return;
    }
    // Whoever takes memory away must know that its users are done.
    w.host_access(a.base, a.size, true, by);
}

void drop_allocation(const std::shared_ptr<Allocation>& a) {
    World& w = World::get();
    w.oracle.forget(a->base, a->end());
    w.map.remove(a->base);
    DeviceMemory& memory = w.devices[static_cast<std::size_t>(a->device)]->memory;
    switch (a->kind) {
    case Memory::device:
    case Memory::pool:
        memory.release(a->base, a->size);
        break;
    case Memory::managed:
    case Memory::pinned:
        unmap_pages(reinterpret_cast<void*>(a->base), round_up(a->size, kGranule));
        break;
    case Memory::registered:
    case Memory::mapped:
    case Memory::imported:
        break;  // the pages belong to somebody else
    }
    if (a->pool != nullptr) {
        a->pool->used -= a->size;
        a->pool->reserved -= round_up(a->size, kAlignment);
    }
}

}  // namespace simcuda
