#include "core/pool/size_rules.h"

namespace cachealloc {

std::uint32_t BinIndex::large_bin(std::uint64_t rounded) {
    // Fibonacci hashing: sizes are multiples of 512 and often of powers of two.
    const std::uint64_t hash = rounded / kBlockAlignment * 0x9E3779B97F4A7C15ULL;
    const auto start = static_cast<std::uint32_t>(hash >> 54);
    static_assert(kLargeBins == 1U << 10);
    for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
        const std::uint32_t slot = (start + probe) % kLargeBins;
        std::uint64_t held = large_size_[slot].load(std::memory_order_relaxed);
        if (held == rounded) return kSmallBins + slot;
        if (held == 0) {
            if (large_size_[slot].compare_exchange_strong(held, rounded,
                                                          std::memory_order_relaxed) ||
                held == rounded) {
                return kSmallBins + slot;
            }
        }
    }
    return kNone;
}

} // namespace cachealloc
