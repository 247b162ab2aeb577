#include "shim/resolve.h"

#include "shim/caller.h"
#include "shim/driver.h"
#include "shim/real_dlsym.h"
#include "shim/submit.h"
#include "shim/unknown_entries.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

namespace cachealloc::shim {

constinit RealDriver real{};
constinit DoorCounters door_counters{};

namespace {

enum class Mode : std::uint8_t { undecided, on, off };

constinit std::atomic<Mode> mode{Mode::undecided};
// The driver taken over: claimed by whoever comes first, then filled in by everyone who comes
// before `bound` is set, with equal values.
constinit std::atomic<const link_map*> driver{nullptr};
constinit std::atomic<bool> bound{false};
constinit std::atomic<void*> real_address[kHookCount]{};
// Only under off: what linked symbols forward to.
constinit std::atomic<void*> direct_address[kHookCount]{};

void count(std::atomic<std::uint64_t>& counter) {
    counter.fetch_add(1, std::memory_order_relaxed);
}

// Read by hand: shells and other programs bring a getenv of their own.
Mode read_mode() {
    static const char wanted[] = "CACHEALLOC_CONF=off";
    for (char** variable = environ; *variable != nullptr; ++variable) {
        std::size_t i = 0;
        while (wanted[i] != '\0' && (*variable)[i] == wanted[i])
            ++i;
        if (wanted[i] == '\0' && (*variable)[i] == '\0') return Mode::off;
    }
    return Mode::on;
}

void* in_driver(void* handle, const char* name, const link_map* object) {
    void* address = real_dlsym(handle, name);
    return address != nullptr && object_of(address) == object ? address : nullptr;
}

// Every driver has it and nobody intercepts it, this library least of all.
constexpr const char* kAnchor = "cuDriverGetVersion";

// The driver that `handle` leads to: the object that defines both the anchor and the allocation,
// which excludes libraries that wrap some of its functions, and this one. Null for none.
const link_map* driver_behind(void* handle) {
    const link_map* object = object_of(real_dlsym(handle, kAnchor));
    if (object == nullptr || in_driver(handle, "cuMemAlloc_v2", object) == nullptr) return nullptr;
    return object;
}

void* hook_real_address(Hook hook) {
    return real_address[static_cast<std::size_t>(hook)].load(std::memory_order_acquire);
}

// The door for an intercepted function that `handle` was found to define at `found`; null to leave
// it.
void* substitute(void* handle, Hook hook, void* found) {
    if (found == door_of(hook) || is_off()) return nullptr;
    if (!is_bound()) bind_driver(handle);
    if (found != hook_real_address(hook)) {
        count(door_counters.foreign_lookups);
        return nullptr;
    }
    count(door_counters.dlsym_substituted);
    return door_of(hook);
}

Hook intercepted(void* handle, const char* name) {
    // RTLD_DEFAULT and RTLD_NEXT depend on the caller, whom only a jump preserves.
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || name == nullptr) return Hook::none;
    const Entry entry = find_entry(name);
    return entry == Entry::none ? Hook::none : entry_hook(entry);
}

// Replaces what the driver's look-up returned, if it is intercepted.
void replace(const char* name, void** function) {
    if (function == nullptr || *function == nullptr) return;
    for (std::size_t i = 0; i < kHookCount; ++i) {
        if (real_address[i].load(std::memory_order_relaxed) == *function) {
            *function = door_of(static_cast<Hook>(i));
            count(door_counters.lookup_substituted);
            return;
        }
    }
    // A name that the table lacks, or a later version of a function that submits work.
    const Entry entry = name == nullptr || name[0] == '\0' ? Entry::none : find_entry(name);
    if (entry != Entry::none && entry_kind(entry) != Kind::submit) return;
    count(door_counters.unknown_names);
    *function = UnknownEntries::stand_in(name, *function);
}

// Calls action(handle) with each way from a caller of a linked symbol to its driver, nearest first,
// until one says true: the caller's own object and its dependencies (right with two drivers, and
// the only way for libraries opened RTLD_LOCAL), the loaded libcuda.so.1, what follows in global
// scope.
template <class Action>
bool search_driver(const void* return_address, Action action) {
    const LoadedObject caller(object_of(return_address));
    if (caller && action(caller.handle())) return true;
    const LoadedObject library("libcuda.so.1");
    if (library && action(library.handle())) return true;
    return action(RTLD_NEXT);
}

} // namespace

bool is_off() {
    Mode now = mode.load(std::memory_order_relaxed);
    if (now == Mode::undecided) {
        if (environ == nullptr) return true; // before the C library is up; decided later
        now = read_mode();
        mode.store(now, std::memory_order_relaxed);
    }
    return now == Mode::off;
}

bool is_bound() {
    return bound.load(std::memory_order_acquire);
}

bool bind_driver(void* handle) {
    const link_map* object = driver_behind(handle);
    if (object == nullptr) return false;
    const link_map* first = nullptr;
    if (!driver.compare_exchange_strong(first, object) && first != object) return false;
    if (is_bound()) return true;
#define PASS(name, kind, stream)
#define CALL(name, kind, stream, params) real.name.set(in_driver(handle, #name, object));
#define HOOK(name, kind, stream, params, args)                                                     \
    {                                                                                              \
        void* address = in_driver(handle, #name, object);                                          \
        real_address[static_cast<std::size_t>(Hook::name)].store(address);                         \
        real.name.set(address);                                                                    \
    }
#define SUBMIT(name, kind, stream)                                                                 \
    {                                                                                              \
        void* address = in_driver(handle, #name, object);                                          \
        real_address[static_cast<std::size_t>(Hook::name)].store(address);                         \
        set_submit_target(Submit::name, address);                                                  \
    }
#include "shim/entry_points.def"
#undef PASS
#undef CALL
#undef HOOK
#undef SUBMIT
    // A program may open the driver to look, close it, and open it again for use. The call
    // succeeds, so the failed look-ups above leave nothing behind for the caller's dlerror().
    dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    bound.store(true, std::memory_order_release);
    unwatch_submits(kWatchUnbound);
    return true;
}

Route enter_unbound(Hook hook, const void* return_address, void** direct) {
    if (is_off()) {
        std::atomic<void*>& known = direct_address[static_cast<std::size_t>(hook)];
        *direct = known.load(std::memory_order_acquire);
        if (*direct != nullptr) return Route::direct;
        search_driver(return_address, [&](void* handle) {
            *direct = real_dlsym(handle, hook_name(hook));
            if (*direct != nullptr && is_own(*direct)) *direct = nullptr;
            return *direct != nullptr;
        });
        known.store(*direct, std::memory_order_release);
        return *direct != nullptr ? Route::direct : Route::missing;
    }
    if (!is_bound()) search_driver(return_address, bind_driver);
    return hook_real_address(hook) != nullptr ? Route::hook : Route::missing;
}

CUresult hook_cuGetProcAddress(const char* symbol, void** pfn, int cuda_version, uint64_t flags) {
    const CUresult result = real.cuGetProcAddress(symbol, pfn, cuda_version, flags);
    if (result == CUDA_SUCCESS) replace(symbol, pfn);
    return result;
}

CUresult hook_cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version, uint64_t flags,
                                  CUdriverProcAddressQueryResult* symbol_status) {
    const CUresult result =
        real.cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, symbol_status);
    if (result == CUDA_SUCCESS) replace(symbol, pfn);
    return result;
}

} // namespace cachealloc::shim

// What the stubs of dlsym_stubs.S ask: the answer, or null for the C library to give it.
extern "C" {

__attribute__((used)) void* cachealloc_decide_dlsym(void* handle, const char* name) {
    using namespace cachealloc::shim;
    find_real_dlsym();
    const Hook hook = intercepted(handle, name);
    if (hook == Hook::none) return nullptr;
    void* found = real_dlsym(handle, name);
    return found == nullptr ? nullptr : substitute(handle, hook, found);
}

__attribute__((used)) void* cachealloc_decide_dlvsym(void* handle, const char* name,
                                                     const char* version) {
    using namespace cachealloc::shim;
    find_real_dlsym();
    const Hook hook = intercepted(handle, name);
    if (hook == Hook::none) return nullptr;
    void* found = real_dlvsym(handle, name, version);
    return found == nullptr ? nullptr : substitute(handle, hook, found);
}
}
