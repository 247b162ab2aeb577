#pragma once

#include "tools/analysis/state.h"

#include <cstdint>
#include <vector>

namespace cachealloc::tools {

/// A segment that few bytes keep from being given back.
struct Pin {
    MemorySegment segment;
    Block oldest; ///< of the blocks in it
    std::uint64_t blocks = 0;
    std::uint64_t live = 0; ///< bytes handed out in it
    std::uint64_t free = 0;
};

/// Where the memory of a device's pool was, in bytes:
///     reserved = live + rounding + hard + soft + stream
/// Of growable memory each piece that was mapped counts as a segment; a second mapping takes up
/// none. where live blocks outside all known segments count in none of these.
struct Fragmentation {
    std::uint64_t reserved = 0;
    std::uint64_t live = 0;     ///< as asked for
    std::uint64_t rounding = 0; ///< handed out beyond that
    std::uint64_t hard = 0;     ///< free, in segments that hold live blocks too
    std::uint64_t soft = 0;     ///< free, in segments without live blocks
    std::uint64_t stream = 0;   ///< freed, but work that may use it is not known to be done
    std::uint64_t outside = 0;  ///< live blocks in no known segment: what is known of segments is
                                ///< not all
    std::uint64_t segments = 0;
    std::uint64_t largest_free = 0; ///< the longest free piece
    std::vector<Pin> pins;          ///< those with the most free bytes first
};

/// O(blocks log blocks). At most `most_pins` pins.
[[nodiscard]] Fragmentation fragmentation_of(const State& state, std::uint8_t device,
                                             std::size_t most_pins = 16);

} // namespace cachealloc::tools
