#pragma once

#include "tools/commands/reading.h"

#include <cstdint>
#include <optional>

namespace cachealloc::tools {

struct LeakOptions {
    ReadOptions read;
    std::uint64_t least_bytes = 0; ///< stacks that hold less are left out
    bool host = false;             ///< pinned host memory too
    /// Findings if so many allocations or more are left over.
    std::optional<std::uint64_t> fail_from;
};

/// `cachealloc leaks`: what is live at the end, by stack. Gives the exit code; throws TraceError.
int leaks_main(const LeakOptions& options);

} // namespace cachealloc::tools
