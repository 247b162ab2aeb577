#pragma once

#include "tools/analysis/state.h"

#include <cstdint>
#include <vector>

namespace cachealloc::tools {

/// Memory that one stack allocated and that was live at a moment.
struct Holder {
    std::uint32_t stack = 0; ///< 0: no stack was recorded
    std::uint64_t bytes = 0; ///< as asked for
    std::uint64_t blocks = 0;
    std::uint64_t largest = 0;
    std::uint64_t oldest = 0; ///< ticks of the oldest block's allocation; 0: unknown
    std::uint32_t types = 0;  ///< a bit for each trace::MemoryType
};

/// Which memory to look at.
struct HolderFilter {
    int device = -1;           ///< an ordinal, or -1 for all
    bool device_memory = true; ///< what takes up memory of the device
    bool host_memory = false;  ///< pinned

    [[nodiscard]] bool wants(const Block& block) const;
};

/// Who held the live memory of `state`, the largest first. O(live blocks + stacks log stacks).
[[nodiscard]] std::vector<Holder> holders_of(const State& state, const HolderFilter& filter);

} // namespace cachealloc::tools
