#include "guard.h"

#include <cstring>

namespace simcuda {

Guard::Guard(Entry e, Door door) {
    World& w = World::get();
    if (w.forked) {
        // Without the lock: nobody may ever release it here.
        early_ = door == Door::open ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
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
    if (door != Door::open && me.in_callback) {
        early_ = CUDA_ERROR_NOT_PERMITTED;
        return;
    }
    if (door != Door::open && !w.initialised) {
        early_ = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
    w.tick();
    if (door == Door::work) {
        if (const ContextPtr ctx = me.current()) {
            early_ = ctx->fault();
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
    World& w = World::get();
    *ctx = w.contexts.find(handle);
    if (*ctx != nullptr) {
        return CUDA_SUCCESS;
    }
    return w.dead_contexts.count(handle) != 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                              : CUDA_ERROR_INVALID_CONTEXT;
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
    if (*s == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return (*s)->ctx->alive ? (*s)->ctx->fault() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void pass_free_gate(const ContextPtr& ctx) {
    World::get().wait_for([&] { return owner_of(ctx)->freeing == 0; });
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
    SIM_TRY(forbid_implicit(s));
    const OpPtr submitted = w.submit(s, std::move(work));
    if (op != nullptr) {
        *op = submitted;
    }
    return CUDA_SUCCESS;
}

std::shared_ptr<Allocation> known_allocation(std::uintptr_t p) {
    const auto a = World::get().map.find(p);
    return a != nullptr && a->kind == Memory::pool && a->freeing ? nullptr : a;
}

void wait_as_free(const ContextPtr& ctx) {
    World& w = World::get();
    pass_free_gate(ctx);
    ++ctx->freeing;
    w.wait(w.all_of(ctx, "the wait of cuMemFree"));
    --ctx->freeing;
    w.wake();
}

void check_live_blocks(const Allocation& a, const char* by) {
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
}

void check_release(const Allocation& a, const char* by) {
    World& w = World::get();
    check_live_blocks(a, by);
    if (const OpPtr op = w.pending_user(a.base, a.size)) {
        w.error(std::string(by) + ": memory freed that " + *op->label + " (#" +
                std::to_string(op->id) + ") still uses");
        return;
    }
    // Whoever takes memory away must know that its users are done.
    if (a.kind == Memory::mapped) {
        w.host_unmaps(a.base, a.size, by);
    } else {
        w.host_access(a.base, a.size, true, by);
    }
}

void drop_allocation(const std::shared_ptr<Allocation>& a) {
    World& w = World::get();
    if (a->kind == Memory::mapped) {
        w.mapping_users.forget(a->base, a->end()); // the memory may live on
    } else {
        w.oracle.forget(a->base, a->end());
    }
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
        break; // the pages belong to somebody else
    }
    if (a->pool != nullptr) {
        a->pool->used -= a->size;
        a->pool->reserved -= round_up(a->size, kAlignment);
    }
}

} // namespace simcuda
