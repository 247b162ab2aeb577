// What the preload prints about its pools.
#pragma once

#include "shim/contexts.h"

#include <cstdint>

namespace cachealloc::shim {

// The level as users write it.
const char* name_of(OrderLevel level);

// One line of JSON on stderr, `cachealloc-stats: {..}`, over all pools of the process. For exit.
void print_statistics();

// One line when a request could not be met: what was asked for, how the memory is used, and whether
// it was for the share of the device that the process may hold.
void report_out_of_memory(ContextPool& context, std::uint64_t bytes, bool over_limit = false);

} // namespace cachealloc::shim
