#pragma once

#include "tools/replay/allocation_sequence.h"

#include <functional>
#include <string>

namespace cachealloc::tools {

/// Reads a recording, or a text file (also compressed by gzip) of events or intervals; which of
/// them, its content says. Of a recording the memory of one pool is taken: `pool`, or the one with
/// the largest live peak if it is -1; text files have none, so -1 is all they allow. `progress` is
/// as for History. Throws TraceError.
[[nodiscard]] AllocationSequence read_sequence(const std::string& path, int pool = -1,
                                               std::function<void(double)> progress = {});

} // namespace cachealloc::tools
