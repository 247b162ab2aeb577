#pragma once

#include "tools/replay/allocation_sequence.h"

#include <functional>
#include <string>

namespace cachealloc::tools {

/// What one pool of a recorded process handed out and took back. `pool` is its number, or -1 for
/// the one with the largest live peak. What was live before the oldest event comes first. Throws
/// TraceError if the file cannot be read or no pool of that number handed out anything.
[[nodiscard]] AllocationSequence read_recording(const std::string& path, int pool,
                                                std::function<void(double)> progress);

} // namespace cachealloc::tools
