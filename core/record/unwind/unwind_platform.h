// What unwinding asks of the process it runs in. The core neither looks symbols up nor walks over
// loaded objects, so whoever makes a StackUnwinder (the shim, a test) hands it these functions.
#pragma once

#include "core/record/trace_format.h"

#include <cstddef>
#include <cstdint>

namespace cachealloc {

/// The loaded object around an address.
struct CodeObject {
    std::uintptr_t start = 0; ///< its mapping, [start, end); at `start` lies its ELF header
    std::uintptr_t end = 0;
    const std::byte* frame_header = nullptr; ///< .eh_frame_hdr; null: it has none
};

struct UnwindPlatform {
    /// Finds the object around an address; false: no object. Takes no lock, allocates nothing, any
    /// thread. Null: the walker is not used.
    bool (*find_object)(std::uintptr_t address, CodeObject& object) = nullptr;
    /// libunwind's unw_backtrace(). Null: libgcc unwinds.
    int (*unw_backtrace)(void** frames, int room) = nullptr;
    /// Whether what libunwind has cached still holds. Asked before each use; null: always.
    bool (*libunwind_is_sound)() = nullptr;
    /// Is shown the frames that a full unwinder found, by the thread whose they are; may be null.
    void (*unwound)(const trace::Frame* frames, std::size_t count) = nullptr;
    /// The recorder's own code, whose frames at the inner end of a stack are left out.
    std::uintptr_t own_start = 0;
    std::uintptr_t own_end = 0;
};

} // namespace cachealloc
