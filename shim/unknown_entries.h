// Functions of the driver that the table lacks, because the driver is newer than this library.
//
// What such a function does is not known; it may submit work. So a program that looks one up gets a
// stub (submit_stubs.S) that jumps on, and shows itself at its first call: from then on no work
// counts as totally ordered. A program that never calls it loses nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cachealloc::shim {

class UnknownEntries {
  public:
    static constexpr std::size_t kPlaces = 256;

    // The stub that stands in for `function`, which the driver named `name`; the same for each
    // look-up. `function` itself when all places are taken: then the order is given up at once.
    // Thread-safe, no lock, callable before any initialisation.
    static void* stand_in(const char* name, void* function);

    // The name of the `index`-th one that has been called (0, 1, ..); null at the end.
    static const char* called(std::size_t index);
};

} // namespace cachealloc::shim
