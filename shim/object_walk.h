// Calls that hold the loader's lock: walks over the loaded objects, and our own dlopen.
//
// Invariant: no thread is inside one while another forks. The C library does not reset that lock in
// a child, which would then hang in its first dlopen.
#pragma once

#include <cstddef>
#include <mutex>

#include <link.h>
#include <sched.h>

namespace cachealloc::shim {

inline std::mutex& object_walk_mutex() {
    static constinit std::mutex mutex;
    return mutex;
}

// Not for ever: the holder may wait for the loader's lock, and the caller have it (inside a
// library's constructor).
inline bool lock_briefly(std::mutex& mutex) {
    constexpr int kTries = 1000;
    for (int i = 0; i < kTries; ++i) {
        if (mutex.try_lock()) return true;
        sched_yield();
    }
    return false;
}

// dl_iterate_phdr(). `visit` must not call back here.
inline void walk_objects(int (*visit)(dl_phdr_info*, std::size_t, void*), void* argument) {
    const std::lock_guard lock(object_walk_mutex());
    dl_iterate_phdr(visit, argument);
}

} // namespace cachealloc::shim
