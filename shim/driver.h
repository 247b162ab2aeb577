// The driver's functions, in both directions: `real` holds the driver's own, hook_<name> is what
// the application reaches instead. Both are generated from entry_points.def.
//
// Invariant: `real` is all null until the shim takes a driver over (resolve.h) and, once filled,
// never changes. Under CACHEALLOC_CONF=off it stays null for good, so no hook ever runs.
#pragma once

#include "shim/cuda_types.h"

#include <atomic>

namespace cachealloc::shim {

template <class Signature>
class RealFunction;

// One function of the driver: callable, comparable with nullptr, null if the driver lacks it.
// Threads may read it while another fills it in; a load is a plain move on x86.
template <class Result, class... Args>
class RealFunction<Result(Args...)> {
  public:
    using Pointer = Result (*)(Args...);

    Result operator()(Args... args) const { return get()(args...); }
    Pointer get() const { return pointer_.load(std::memory_order_acquire); }
    explicit operator bool() const { return get() != nullptr; }

    // For the binding alone.
    void set(void* address) {
        pointer_.store(reinterpret_cast<Pointer>(address), std::memory_order_release);
    }

  private:
    std::atomic<Pointer> pointer_;
};

// real.cuMemFree_v2(pointer) calls the driver: every HOOK and CALL row, under its exact name.
struct RealDriver {
#define PASS(name, kind, stream)
#define SUBMIT(name, kind, stream)
#define CALL(name, kind, stream, params) RealFunction<CUresult params> name;
#define HOOK(name, kind, stream, params, args) RealFunction<CUresult params> name;
#include "shim/entry_points.def"
#undef PASS
#undef SUBMIT
#undef CALL
#undef HOOK
};

extern RealDriver real;

// What the application gets for each HOOK row; runs only when real.<name> is not null. Defined in
// driver_*.cpp by subject; driver_passthrough.cpp has a weak definition of each.
#define PASS(name, kind, stream)
#define SUBMIT(name, kind, stream)
#define CALL(name, kind, stream, params)
#define HOOK(name, kind, stream, params, args) CUresult hook_##name params;
#include "shim/entry_points.def"
#undef PASS
#undef SUBMIT
#undef CALL
#undef HOOK

} // namespace cachealloc::shim
