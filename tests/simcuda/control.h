// How a test talks to the simulated CUDA, when it runs on it.
//
// The simulated libcuda.so.1 exports a small C interface beside the driver API. A test must not
// link against it, because the same binary also runs on a GPU: the wrappers here find it at run
// time, in the libcuda.so.1 that the process already has. On a real driver `simulated()` is false,
// counters read 0 and everything else does nothing.
//
// Every function is thread-safe. None of them costs virtual time or counts as a driver call.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

namespace simcuda::control {

// The exported C functions, as the library defines them.
struct Api {
    std::uint64_t (*calls)(const char* entry) = nullptr;
    void (*reset_calls)() = nullptr;
    std::uint64_t (*races)() = nullptr;
    std::uint64_t (*errors)() = nullptr;
    void (*forget_findings)() = nullptr;
    void (*fail)(const char* entry, std::uint64_t nth, int code, std::uint64_t count) = nullptr;
    std::uint64_t (*now_ns)() = nullptr;
    void (*advance_ns)(std::uint64_t ns) = nullptr;
    int (*set)(const char* key, std::uint64_t value) = nullptr;
    std::uint64_t (*get)(const char* key) = nullptr;
    void (*mark_live)(const void* p, std::size_t bytes) = nullptr;
    void (*unmark_live)(const void* p) = nullptr;
    std::uint64_t (*blocked_threads)() = nullptr;
    void (*host_access)(const void* p, std::size_t bytes, int write) = nullptr;
};

// Looked up once, at the first use; the driver must be loaded by then.
inline const Api& api() {
    static const Api found = [] {
        Api a;
        void* lib = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
        if (lib == nullptr) {
            return a;
        }
        const auto get = [lib](auto& fn, const char* name) {
            fn = reinterpret_cast<decltype(+fn)>(dlsym(lib, name));
        };
        get(a.calls, "simcuda_calls");
        get(a.reset_calls, "simcuda_reset_calls");
        get(a.races, "simcuda_races");
        get(a.errors, "simcuda_errors");
        get(a.forget_findings, "simcuda_forget_findings");
        get(a.fail, "simcuda_fail");
        get(a.now_ns, "simcuda_now_ns");
        get(a.advance_ns, "simcuda_advance_ns");
        get(a.set, "simcuda_set");
        get(a.get, "simcuda_get");
        get(a.mark_live, "simcuda_mark_live");
        get(a.unmark_live, "simcuda_unmark_live");
        get(a.blocked_threads, "simcuda_blocked_threads");
        get(a.host_access, "simcuda_host_access");
        return a;
    }();
    return found;
}

// Whether this process's driver is the simulated one.
inline bool simulated() {
    return api().calls != nullptr;
}

// How often the driver's own entry point was reached ("cuMemAlloc_v2"); 0 for unknown names.
inline std::uint64_t calls(const char* entry) {
    return api().calls != nullptr ? api().calls(entry) : 0;
}
inline void reset_calls() {
    if (api().reset_calls != nullptr) api().reset_calls();
}

// Pairs of conflicting accesses without an order between them that the oracle has reported.
inline std::uint64_t races() {
    return api().races != nullptr ? api().races() : 0;
}

// Other findings: use after free, out of bounds, a segment freed under live blocks.
inline std::uint64_t errors() {
    return api().errors != nullptr ? api().errors() : 0;
}

// Sets both counts back to 0, for tests that provoke a finding on purpose.
inline void forget_findings() {
    if (api().forget_findings != nullptr) api().forget_findings();
}

// The `nth` next call of `entry` (1 = the next) and the count - 1 after it return `code` and do
// nothing else.
inline void fail(const char* entry, std::uint64_t nth, int code, std::uint64_t count = 1) {
    if (api().fail != nullptr) api().fail(entry, nth, code, count);
}

// Virtual time since the driver was initialised.
inline std::uint64_t now_ns() {
    return api().now_ns != nullptr ? api().now_ns() : 0;
}

// Lets virtual time pass, as a host does that computes something; device work due by then runs.
inline void advance_ns(std::uint64_t ns) {
    if (api().advance_ns != nullptr) api().advance_ns(ns);
}

// Any setting of the SIMCUDA variable at run time (see README.md); false if the key is unknown.
// get("used_bytes"): physical memory of all devices that is in use.
inline bool set(const char* key, std::uint64_t value) {
    return api().set != nullptr && api().set(key, value) != 0;
}
inline std::uint64_t get(const char* key) {
    return api().get != nullptr ? api().get(key) : 0;
}

// Marks bytes as belonging to a live block of the program: a real free of the driver allocation
// around them is then an error. Unmark takes the same start address.
inline void mark_live(const void* p, std::size_t bytes) {
    if (api().mark_live != nullptr) api().mark_live(p, bytes);
}
inline void unmark_live(const void* p) {
    if (api().unmark_live != nullptr) api().unmark_live(p);
}

// Host threads that wait inside the driver just now (for work or for another thread's cuMemFree).
inline std::uint64_t blocked_threads() {
    return api().blocked_threads != nullptr ? api().blocked_threads() : 0;
}

// Tells the race oracle that the host itself reads or writes memory that the device can reach. A
// stream that waits for a value there comes behind what the host knew when it wrote.
inline void host_access(const void* p, std::size_t bytes, bool write) {
    if (api().host_access != nullptr) api().host_access(p, bytes, write ? 1 : 0);
}

} // namespace simcuda::control
