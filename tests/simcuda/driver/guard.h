// The door that every driver entry point passes: takes the lock, counts the call, lets host time
// pass, and answers injected failures and sticky errors.
//
// Invariant: an entry point that is exported is a row of entries.def and its first statement is
// SIM_ENTER, SIM_ENTER_STATE or SIM_ENTER_QUIET; nothing touches the world without the guard's
// lock.
#pragma once

#include <cstdint>
#include <functional>

#include "world.h"

namespace simcuda {

enum class Entry : unsigned {
#define SIM_ROW(symbol, base, since, per_thread) symbol,
#include "entries.def"
#undef SIM_ROW
    count
};

struct EntryRow {
    const char* symbol; // as exported
    const char* base;   // as asked for through cuGetProcAddress
    int since;          // the CUDA version that brought this shape of it
    bool per_thread;    // a _ptsz or _ptds twin
    void (*address)();
    std::uint64_t calls = 0;
    std::uint64_t fail_in = 0; // the n-th call from now fails; 0: none
    std::uint64_t fail_count = 0;
    CUresult fail_with = CUDA_SUCCESS;
};
EntryRow& row(Entry e);
EntryRow* row(const char* symbol); // null if unknown

enum class Door {
    open,  // works before cuInit, in callbacks and in forked children
    state, // needs cuInit; works after a fault
    work,  // also answers the current context's sticky error
};

class Guard {
  public:
    Guard(Entry e, Door door);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    CUresult early() const { return early_; }

  private:
    Lock lock_;
    CUresult early_ = CUDA_SUCCESS;
};

#define SIM_ENTER_BY(symbol, door)                                                                 \
    ::simcuda::Guard guard(::simcuda::Entry::symbol, ::simcuda::Door::door);                       \
    if (guard.early() != CUDA_SUCCESS) return guard.early()
#define SIM_ENTER(symbol) SIM_ENTER_BY(symbol, work)
#define SIM_ENTER_STATE(symbol) SIM_ENTER_BY(symbol, state)
#define SIM_ENTER_QUIET(symbol) SIM_ENTER_BY(symbol, open)

// Leaves the function with the error, if it is one.
#define SIM_TRY(expression)                                                                        \
    if (const CUresult sim_result = (expression); sim_result != CUDA_SUCCESS) return sim_result

// A pair of entry points that differ in the stream that 0 means; `impl` takes that first.
#define SIM_TWINS(plain, twin, impl, params, ...)                                                  \
    SIM_EXPORT CUresult plain params {                                                             \
        SIM_ENTER(plain);                                                                          \
        return impl(false, __VA_ARGS__);                                                           \
    }                                                                                              \
    SIM_EXPORT CUresult twin params {                                                              \
        SIM_ENTER(twin);                                                                           \
        return impl(true, __VA_ARGS__);                                                            \
    }

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

// --- What several entry points share. The guard's lock is held.

// The current context, or INVALID_CONTEXT.
CUresult current_context(ContextPtr* ctx);
// A live context by handle; null means the current one.
CUresult context_of(CUcontext handle, ContextPtr* ctx);
// The context of a green context, or INVALID_CONTEXT.
CUresult green_context(CUgreenCtx handle, ContextPtr* ctx);
// Makes a context with its legacy stream; ends one: its work ends first, then its streams and its
// memory go, and a primary's green contexts go with it.
ContextPtr make_context(CUdevice dev, unsigned flags, bool primary);
void destroy_context(const ContextPtr& ctx);
// A use of the device's primary context begins (made if there is none) and ends. Both check `dev`.
CUresult retain_primary(CUdevice dev, ContextPtr* ctx);
CUresult release_primary(CUdevice dev);
// The stream a handle stands for; 0 is the legacy or, for per-thread entries, the thread's stream.
CUresult stream_of(CUstream handle, bool per_thread, StreamPtr* s);

// Submits work, or captures it when the stream captures: with the checks and the waits that every
// submission has. `op` (optional) receives the operation, null when it was captured.
CUresult submit(const StreamPtr& s, Work work, OpPtr* op = nullptr);
// Waits while a cuMemFree of another thread waits in this context, as measured.
void pass_free_gate(const ContextPtr& ctx);

// Capture rules (capture.cpp).
// For calls that a capture forbids: 900, and the captures in the way are invalidated.
// `others`: whether another thread's global capture forbids it too.
CUresult forbid_while_capturing(bool others);
void invalidate(const CapturePtr& capture);
// The capture is over for all its streams.
void leave_capture(const CapturePtr& capture);
// 906 when the legacy stream would come behind a capturing blocking stream; those captures end.
CUresult forbid_implicit(const StreamPtr& s);
// Invalidates every capture of the context; 900 if there was one.
CUresult forbid_context_captures(const ContextPtr& ctx);
CUresult add_node(const StreamPtr& s, Work work, CUgraphNodeType type, NodePtr* node = nullptr);
CUgraphNodeType node_type(const Work& work);

// The allocation around `p` as queries see it: stream-ordered memory is gone once its free was
// submitted, even before that has run. Null if there is none.
std::shared_ptr<Allocation> known_allocation(std::uintptr_t p);
// Device memory given back for good: its history and its bytes go.
void drop_allocation(const std::shared_ptr<Allocation>& a);
// Reports marked live ranges inside memory that is about to go.
void check_live_blocks(const Allocation& a, const char* by);
// The same, and unfinished work inside memory that is about to go.
void check_release(const Allocation& a, const char* by);
// Waits as cuMemFree does: for all work of the context, other threads' submissions held up.
void wait_as_free(const ContextPtr& ctx);

} // namespace simcuda
