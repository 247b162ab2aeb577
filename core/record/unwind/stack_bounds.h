// Where the stack of the calling thread lies.
#pragma once

#include <cstdint>

namespace cachealloc {

struct StackBounds {
    std::uintptr_t low = 0;
    std::uintptr_t high = 0;

    bool hold(std::uintptr_t address) const { return address >= low && address < high; }
};

/// The stack that the thread was given: neither a signal stack nor a fiber's. Empty where it cannot
/// be found out. A thread's first call is slow (up to 0.2 ms for the main thread, which reads
/// /proc/self/maps) and allocates; later ones are a few loads.
StackBounds stack_bounds();

} // namespace cachealloc
