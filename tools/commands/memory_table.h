#pragma once

#include "tools/analysis/memory_stats.h"

#include <string>

namespace cachealloc::tools {

/// How an allocator's memory and blocks came and went on one device, as a table for people;
/// `by_class` adds what of each line is in requests up to 1 MiB, and in larger ones.
[[nodiscard]] std::string memory_table(const KnownMemoryStats& stats, bool by_class);

} // namespace cachealloc::tools
