// What the preload prints about its pools.
#pragma once

#include "shim/contexts.h"

#include <cstdint>

namespace cachealloc::shim {

// The level as users write it.
const char* name_of(OrderLevel level);

// One line of JSON on stderr, `cachealloc-stats: {..}`, over all pools of the process. For exit.
void print_statistics();

// One line when a request could not be met: what was asked for and how the memory is used.
void report_out_of_memory(ContextPool& context, std::uint64_t bytes);

} // namespace cachealloc::shim
