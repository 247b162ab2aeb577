// A library that wraps a C library function and forwards with RTLD_NEXT, as preloads, sanitizers
// and OpenMP runtimes do. RTLD_NEXT must mean "after this library", whoever else is preloaded. The
// results pass through a volatile, since a look-up in tail position has another caller.
#include <dlfcn.h>
#include <sys/types.h>

extern "C" {
__attribute__((visibility("default"))) pid_t getppid() {
    using Function = pid_t (*)();
    static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getppid"));
    return next();
}
__attribute__((visibility("default"))) void* next_library_found() {
    void* volatile found = dlsym(RTLD_NEXT, "getppid");
    return found;
}
__attribute__((visibility("default"))) void* next_library_found_versioned() {
    void* volatile found = dlvsym(RTLD_NEXT, "getppid", "GLIBC_2.2.5");
    return found;
}
__attribute__((visibility("default"))) void* next_library_found_driver() {
    void* volatile found = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    return found;
}
}
