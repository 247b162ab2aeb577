// Walks over the loaded objects.
//
// Invariant: no thread is inside such a walk while another forks. The walk holds a lock of the
// loader that the C library does not reset in a child, which would then hang in its first dlopen.
#pragma once

#include <cstddef>
#include <mutex>

#include <link.h>

namespace cachealloc::shim {

inline std::mutex& object_walk_mutex() {
    static constinit std::mutex mutex;
    return mutex;
}

// dl_iterate_phdr(). `visit` must not call back here.
inline void walk_objects(int (*visit)(dl_phdr_info*, std::size_t, void*), void* argument) {
    const std::lock_guard lock(object_walk_mutex());
    dl_iterate_phdr(visit, argument);
}

} // namespace cachealloc::shim
