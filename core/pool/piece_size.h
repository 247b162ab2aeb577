#pragma once

#include "core/pool/types.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cachealloc {

/// How growth is divided into pieces. A driver call for access or for unmapping costs per piece (24
/// and 15 us, H200), so large growth takes larger ones; but only whole pieces can be mapped a
/// second time, so they stay well below what programs ask for: in simulations of 69 programs a
/// sixteenth of the growth cost nothing, an eighth cost 2 % more memory with ragged training.
struct PieceRule {
    static constexpr std::uint64_t kShare = 16;
    static constexpr std::uint64_t kLargest = 32 * kMiB;
    /// Different sizes in one growth: the largest, and smaller powers of two for the rest.
    static constexpr std::uint32_t kMostSizes = 8;
};

/// Bytes of the next pieces where `rest` of a growth by `total` bytes (both multiples of kGranule)
/// is still to be mapped: a power of two of granules.
inline std::uint64_t piece_size(std::uint64_t rest, std::uint64_t total) {
    const std::uint64_t share =
        std::bit_floor(std::clamp(total / PieceRule::kShare, kGranule, PieceRule::kLargest));
    return std::min(share, std::bit_floor(rest));
}

} // namespace cachealloc
