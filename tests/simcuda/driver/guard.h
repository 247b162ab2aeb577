// The door that every driver entry point passes: takes the lock, counts the call, lets host time
// pass, and answers injected failures and sticky errors.
//
// Invariant: an entry point that is exported is a row of entries.def and its first statement is
// SIM_ENTER or SIM_ENTER_QUIET; nothing touches the world without the guard's lock.
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
    const char* symbol;  // as exported
    const char* base;    // as asked for through cuGetProcAddress
    int since;           // the CUDA version that brought this shape of it
    bool per_thread;     // a _ptsz or _ptds twin
    void (*address)();
    std::uint64_t calls = 0;
    std::uint64_t fail_in = 0;  // the n-th call from now fails; 0: none
    std::uint64_t fail_count = 0;
    CUresult fail_with = CUDA_SUCCESS;
};
EntryRow& row(Entry e);
EntryRow* row(const char* symbol);  // null if unknown

class Guard {
  public:
    // `strict` entries need cuInit and answer the current context's sticky error.
    Guard(Entry e, bool strict);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    CUresult early() const { return early_; }

  private:
    Lock lock_;
    CUresult early_ = CUDA_SUCCESS;
};

#define SIM_ENTER(symbol)                                                                          \
    ::simcuda::Guard guard(::simcuda::Entry::symbol, true);                                        \
    if (guard.early() != CUDA_SUCCESS) return guard.early()
// For calls that work before cuInit, without a context and after a fault.
#define SIM_ENTER_QUIET(symbol)                                                                    \
    ::simcuda::Guard guard(::simcuda::Entry::symbol, false);                                       \
    if (guard.early() != CUDA_SUCCESS) return guard.early()

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
// The stream a handle stands for; 0 is the legacy or, for per-thread entries, the thread's stream.
CUresult stream_of(CUstream handle, bool per_thread, StreamPtr* s);

// Submits work, or captures it when the stream captures: with the checks and the waits that every
// submission has. `op` (optional) receives the operation, null when it was captured.
CUresult submit(const StreamPtr& s, Work work, OpPtr* op = nullptr);
// Waits while a cuMemFree of another thread waits in this context, as measured.
void pass_free_gate(const ContextPtr& ctx);
// The same with the wait of a synchronous call behind it.
CUresult submit_and_wait(const StreamPtr& s, Work work);

// Capture rules (capture.cpp).
// For calls that a capture forbids: 900, and the captures in the way are invalidated.
// `others`: whether another thread's global capture forbids it too.
CUresult forbid_while_capturing(bool others);
void invalidate(const CapturePtr& capture);
// Invalidates every capture of the context; 900 if there was one.
CUresult forbid_context_captures(const ContextPtr& ctx);
CUresult add_node(const StreamPtr& s, Work work, CUgraphNodeType type, NodePtr* node = nullptr);
CUgraphNodeType node_type(const Work& work);

// Device memory given back for good: its history and its bytes go.
void drop_allocation(const std::shared_ptr<Allocation>& a);
// Reports marked live ranges and unfinished work inside memory that is about to go.
void check_release(const Allocation& a, const char* by);
// Waits as cuMemFree does: for all work of the context, other threads' submissions held up.
void wait_as_free(const ContextPtr& ctx);

}  // namespace simcuda
