#pragma once

#include "core/pool/types.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace cachealloc {

/// roundup_power2_divisions: into how many steps each power of two is divided, for the 16 intervals
/// that begin at 1 MiB, 2 MiB, .. 32 GiB (smaller sizes use the first, larger ones the last).
/// 0 and 1 switch it off.
using PowerOfTwoDivisions = std::array<std::uint8_t, 16>;

/// Bytes that a request of `bytes` (at least 1) occupies: a multiple of kBlockAlignment.
inline std::uint64_t rounded_size(std::uint64_t bytes, const PowerOfTwoDivisions& divisions) {
    const auto log2 = static_cast<std::uint32_t>(std::bit_width(bytes | 1) - 1);
    const std::uint32_t interval = log2 < 20 ? 0 : (log2 > 35 ? 15 : log2 - 20);
    const std::uint64_t parts = divisions[interval];
    if (parts > 1 && bytes > kBlockAlignment * parts) {
        const std::uint64_t floor = std::uint64_t{1} << log2;
        const std::uint64_t step = floor / parts;
        return (bytes + step - 1) / step * step;
    }
    return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

inline bool is_small(std::uint64_t rounded) {
    return rounded <= kSmallRequest;
}

/// The two kinds of requests that statistics tell apart: the bound is PyTorch's, of rounded sizes.
enum SizeClass : std::uint32_t { kSmallClass = 0, kLargeClass = 1, kBothClasses = 2 };
inline constexpr std::uint32_t kSizeClasses = 2;

inline SizeClass size_class(bool small) {
    return small ? kSmallClass : kLargeClass;
}

/// Numbers the exact sizes that have a cache of their own: every multiple of 512 bytes up to 1 MiB,
/// and the first kLargeBins larger sizes that a program uses.
class BinIndex {
  public:
    static constexpr std::uint32_t kSmallBins = kSmallRequest / kBlockAlignment;
    static constexpr std::uint32_t kLargeBins = 1024;
    static constexpr std::uint32_t kBins = kSmallBins + kLargeBins;
    static constexpr std::uint32_t kNone = kBins; ///< sizes without a cache

    /// Of the sizes that have this bin, or none.
    static SizeClass size_class(std::uint32_t bin) {
        return static_cast<SizeClass>(bin >= kSmallBins);
    }

    /// The bin of a rounded size; claims one at its first use. Lock-free, O(1) (at most kProbes
    /// loads).
    std::uint32_t bin(std::uint64_t rounded) {
        if (rounded <= kSmallRequest) {
            return static_cast<std::uint32_t>(rounded / kBlockAlignment) - 1;
        }
        return large_bin(rounded);
    }

  private:
    static constexpr std::uint32_t kProbes = 8;
    std::uint32_t large_bin(std::uint64_t rounded);

    std::array<std::atomic<std::uint64_t>, kLargeBins> large_size_{};
};

} // namespace cachealloc
