#pragma once

#include "tools/commands/reading.h"

namespace cachealloc::tools {

/// `cachealloc check`: whether a recording is whole, and what it lacks. A recording that can be
/// read is fine, whatever it lacks. Gives the exit code; throws TraceError.
int check_main(const ReadOptions& options);

} // namespace cachealloc::tools
