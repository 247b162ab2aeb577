#pragma once

#include "tools/commands/reading.h"

namespace cachealloc::tools {

/// `cachealloc peak`: who held the memory when most was live, with whole stacks. Gives the exit
/// code; throws TraceError.
int peak_main(const ReadOptions& options);

} // namespace cachealloc::tools
