// This process as the unwinder sees it.
#pragma once

#include "core/record/unwind/unwind_platform.h"

#include <dlfcn.h>

namespace cachealloc::test {

inline bool find_object(std::uintptr_t address, CodeObject& object) {
    dl_find_object found;
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return false;
    object.start = reinterpret_cast<std::uintptr_t>(found.dlfo_map_start);
    object.end = reinterpret_cast<std::uintptr_t>(found.dlfo_map_end);
    object.frame_header = static_cast<const std::byte*>(found.dlfo_eh_frame);
    return true;
}

inline UnwindPlatform process_platform() {
    UnwindPlatform platform;
    platform.find_object = find_object;
    return platform;
}

} // namespace cachealloc::test
