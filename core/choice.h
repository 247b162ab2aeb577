#pragma once

#include <atomic>
#include <cstdint>

namespace cachealloc {

/// From this many younger fences on, waiting on the host for the oldest block keeps the device busy
/// and beats a barrier, which holds up every stream.
inline constexpr std::uint64_t kYoungerFences = 3;

#ifdef CACHEALLOC_TEST_SWITCHES
/// What a benchmark puts in its place to compare: 0 never lets a barrier settle anything, a huge
/// number never lets the host wait.
inline std::atomic<std::uint64_t> g_younger_fences{kYoungerFences};

inline std::uint64_t younger_fences() {
    return g_younger_fences.load(std::memory_order_relaxed);
}
#else
constexpr std::uint64_t younger_fences() {
    return kYoungerFences;
}
#endif

} // namespace cachealloc
