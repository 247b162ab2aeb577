// What each stack costs: for exporters of flame graphs.
#pragma once

#include "tools/exports/exporter.h"

#include <cstdint>
#include <map>

namespace cachealloc::tools {

struct StackCost {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
};

/// By stack number; 0 is what has no stack. Memory of the devices that the job is about, whoever
/// owns it; host memory and mere mappings are not counted. One or two passes over the events.
[[nodiscard]] std::map<std::uint32_t, StackCost> stack_costs(const ExportJob& job);

} // namespace cachealloc::tools
