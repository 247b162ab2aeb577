#pragma once

namespace cachealloc::tools {

/// What the program's exit status says. `run` gives that of the program it started instead.
enum ExitCode : int {
    kFine = 0,
    kFindings = 1,   ///< --fail-on asked, and it is so; --limit, and it does not fit
    kUsage = 2,      ///< the command line, CACHEALLOC_CONF or an output file is wrong
    kUnreadable = 3, ///< the recording cannot be read
};

} // namespace cachealloc::tools
