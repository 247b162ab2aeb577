// The C library's own dlsym and dlvsym, which this library hides from everyone, itself included.
#pragma once

#include <atomic>

namespace cachealloc::shim {

using DlsymFunction = void* (*)(void* handle, const char* name);
using DlvsymFunction = void* (*)(void* handle, const char* name, const char* version);

// Finds both, once. They are looked up in the symbol table of the loaded libc (libdl before glibc
// 2.34) by walking the dynamic linker's own list of objects: no libc function is called, since this
// runs before any constructor and while sanitizers start. Threads may race: they store equal
// values. Without such a library (no glibc) both become functions that find nothing.
void find_real_dlsym();

// The real functions, never null after find_real_dlsym(). They see this library as their caller, so
// a pseudo-handle means "after the shim". Complexity: the C library's.
void* real_dlsym(void* handle, const char* name);
void* real_dlvsym(void* handle, const char* name, const char* version);

// The C library's own function of that name, null if it has none. No libc function is called and
// dlerror() stays as it is. O(loaded objects).
void* find_in_libc(const char* name);

} // namespace cachealloc::shim

// Where they are kept; set by find_real_dlsym(). dlsym_stubs.S jumps through them.
extern "C" {
extern std::atomic<cachealloc::shim::DlsymFunction> cachealloc_real_dlsym;
extern std::atomic<cachealloc::shim::DlvsymFunction> cachealloc_real_dlvsym;
}
