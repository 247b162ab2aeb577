#include "shim/runtime_api.h"

#include "shim/caller.h"
#include "shim/real_dlsym.h"

#include <array>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <link.h>

namespace cachealloc::shim {
namespace {

constexpr std::size_t kFunctions = static_cast<std::size_t>(RuntimeFunction::count);
constexpr const char* kNames[kFunctions] = {"cudaMalloc", "cudaFree", "cudaMallocAsync",
                                            "cudaFreeAsync"};

// Tells objects apart, also a new one whose link map took the place of an unloaded one's.
struct Identity {
    const link_map* object;
    std::uintptr_t base;
    std::uint64_t name_hash;

    bool operator==(const Identity&) const = default;
};

std::uint64_t hash(const char* text) {
    std::uint64_t value = 14695981039346656037ULL;
    for (; *text != '\0'; ++text)
        value = (value ^ static_cast<unsigned char>(*text)) * 1099511628211ULL;
    return value;
}

Identity identity_of(const link_map* object) {
    if (object == nullptr) return {};
    return {object, object->l_addr, hash(object->l_name)};
}

struct Caller {
    std::atomic<bool> ready;
    Identity identity;
    std::array<void*, kFunctions> function;
};

// Append-only: a slot is claimed, filled and then marked ready. Racing threads may fill two slots
// alike. Callers beyond the capacity are looked up anew each time.
constexpr std::size_t kCapacity = 128;
constinit Caller callers[kCapacity]{};
constinit std::atomic<std::size_t> claimed{0};

const Caller* find_caller(const Identity& identity) {
    const std::size_t count = std::min(claimed.load(std::memory_order_acquire), kCapacity);
    for (std::size_t i = 0; i < count; ++i) {
        if (callers[i].ready.load(std::memory_order_acquire) && callers[i].identity == identity)
            return &callers[i];
    }
    return nullptr;
}

void remember(const Identity& identity, const std::array<void*, kFunctions>& function) {
    if (claimed.load(std::memory_order_relaxed) >= kCapacity) return;
    const std::size_t slot = claimed.fetch_add(1, std::memory_order_acq_rel);
    if (slot >= kCapacity) return;
    callers[slot].identity = identity;
    callers[slot].function = function;
    callers[slot].ready.store(true, std::memory_order_release);
}

// Any libcudart at all, for a caller that has none in reach: a library that ends in the call jumps
// to us with its own caller's return address.
void* find_in_any_runtime(const char* name) {
    for (const link_map* object = _r_debug.r_map; object != nullptr; object = object->l_next) {
        const char* slash = std::strrchr(object->l_name, '/');
        if (slash == nullptr || std::strncmp(slash, "/libcudart.so", 13) != 0) continue;
        if (void* address = LoadedObject(object).find(name)) return address;
    }
    return nullptr;
}

// Every runtime has it and no preload replaces it: it leads to the runtime itself, past any other
// library that brings a cudaMalloc of its own, such as a second copy of this one, which would look
// for ours in turn.
constexpr const char* kAnchor = "cudaRuntimeGetVersion";

void* find_for(const LoadedObject& caller, const char* name) {
    for (void* const anchor : {caller.find(kAnchor), real_dlsym(RTLD_NEXT, kAnchor)}) {
        const LoadedObject runtime(anchor != nullptr ? object_of(anchor) : nullptr);
        if (void* const address = runtime ? runtime.find(name) : nullptr) return address;
    }
    return find_in_any_runtime(name);
}

} // namespace

void* runtime_function(RuntimeFunction function, const void* return_address) {
    const auto index = static_cast<std::size_t>(function);
    const link_map* object = object_of(return_address);
    const Identity identity = identity_of(object);
    if (const Caller* known = find_caller(identity)) return known->function[index];
    const LoadedObject caller(object);
    std::array<void*, kFunctions> found{};
    bool complete = true;
    for (std::size_t i = 0; i < kFunctions; ++i) {
        found[i] = find_for(caller, kNames[i]);
        complete = complete && found[i] != nullptr;
    }
    // What is missing now may be loaded later.
    if (complete) remember(identity, found);
    return found[index];
}

} // namespace cachealloc::shim

#define CACHEALLOC_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using cachealloc::shim::RuntimeFunction;

template <class... Args>
int forward(RuntimeFunction which, const void* return_address, Args... args) {
    void* address = cachealloc::shim::runtime_function(which, return_address);
    if (address == nullptr) return cachealloc::shim::kErrorInsufficientDriver;
    return reinterpret_cast<int (*)(Args...)>(address)(args...);
}

} // namespace

CACHEALLOC_EXPORT int cudaMalloc(void** pointer, std::size_t bytes) {
    return forward(RuntimeFunction::malloc, __builtin_return_address(0), pointer, bytes);
}

CACHEALLOC_EXPORT int cudaFree(void* pointer) {
    return forward(RuntimeFunction::free, __builtin_return_address(0), pointer);
}

CACHEALLOC_EXPORT int cudaMallocAsync(void** pointer, std::size_t bytes, void* stream) {
    return forward(RuntimeFunction::malloc_async, __builtin_return_address(0), pointer, bytes,
                   stream);
}

CACHEALLOC_EXPORT int cudaFreeAsync(void* pointer, void* stream) {
    return forward(RuntimeFunction::free_async, __builtin_return_address(0), pointer, stream);
}
