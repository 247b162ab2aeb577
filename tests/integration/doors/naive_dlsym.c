// The control: what dlsym must not look like. A call instead of a jump, so that the C library sees
// this library as the caller.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
    static void* (*real)(void*, const char*);
    if (real == NULL)
        real = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void* volatile found = real(handle, name);
    return found;
}
