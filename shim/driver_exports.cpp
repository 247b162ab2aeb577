// The exported cu* symbols, generated from entry_points.def: what programs linked with -lcuda call,
// and what every other door hands out.
//
// Invariant: hook_<name> runs only when real.<name> is known. Until then each call looks for the
// driver, since weak references to these symbols are never null under the preload and may be called
// in a process without one: it gets what an uninitialised driver answers.
#include "shim/driver.h"
#include "shim/entry_counts.h"
#include "shim/resolve.h"

#define CACHEALLOC_EXPORT extern "C" __attribute__((visibility("default")))

namespace cachealloc::shim {

#define PASS(name, kind, stream)
#define CALL(name, kind, stream, params)
#define SUBMIT(name, kind, stream) extern "C" void name();
#define HOOK(name, kind, stream, params, args)                                                     \
    CACHEALLOC_EXPORT CUresult name params {                                                       \
        if (!real.name) [[unlikely]] {                                                             \
            void* direct = nullptr;                                                                \
            const Route route = enter_unbound(Hook::name, __builtin_return_address(0), &direct);   \
            if (route == Route::missing) return CUDA_ERROR_NOT_INITIALIZED;                        \
            if (route == Route::direct) return reinterpret_cast<CUresult(*) params>(direct) args;  \
        }                                                                                          \
        count_entry(Entry::name);                                                                  \
        return hook_##name args;                                                                   \
    }
#include "shim/entry_points.def"
#undef HOOK
#undef SUBMIT

void* door_of(Hook hook) {
    switch (hook) {
#define HOOK(name, kind, stream, params, args)                                                     \
    case Hook::name:                                                                               \
        return reinterpret_cast<void*>(name);
#define SUBMIT(name, kind, stream) HOOK(name, kind, stream, (), ())
#include "shim/entry_points.def"
#undef PASS
#undef CALL
#undef HOOK
#undef SUBMIT
    case Hook::none:
        break;
    }
    return nullptr;
}

} // namespace cachealloc::shim
