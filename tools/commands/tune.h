#pragma once

#include "tools/replay/pool_replay.h"

#include <string>

namespace cachealloc::tools {

struct TuneOptions {
    std::string file; ///< empty: the newest recording
    double most_calls = 2;
    unsigned steps = kDefaultSteps;
    int pool = -1;
    bool json = false;
};

/// `cachealloc tune`: the options that reserve least for recorded allocations, beside other
/// policies. Gives the exit code; throws TraceError.
int tune_main(const TuneOptions& options);

} // namespace cachealloc::tools
