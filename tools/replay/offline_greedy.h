#pragma once

#include "tools/replay/pool_replay.h"

#include <cstdint>

namespace cachealloc::tools {

/// What comes first in an offline placement: the largest blocks, those that live longest, or those
/// with most bytes times events.
enum class GreedyOrder : std::uint8_t { size, lifetime, area };

/// Which of equal blocks comes first: the earlier one, or the one that lives longer (of equal
/// sizes) or is larger (of equal lifetimes and areas).
enum class GreedyTies : std::uint8_t { earlier, other_rank };

/// Beyond so many allocations no offline placement is tried: it compares each with each.
inline constexpr std::uint32_t kMostOffline = 60000;

/// A placement made with the whole sequence in view: blocks in that order, each at the lowest
/// address that is free for all its life. Its peak is what an allocator that sees nothing of the
/// future hardly beats. All of its memory counts as one allocation. O(allocations^2); for at most
/// kMostOffline of them.
[[nodiscard]] ReplayResult replay_greedy(const AllocationSequence& sequence, GreedyOrder order,
                                         GreedyTies ties,
                                         std::uint64_t limit = SimulatedSource::kNoLimit);

/// The best of all of them.
[[nodiscard]] ReplayResult replay_greedy(const AllocationSequence& sequence,
                                         std::uint64_t limit = SimulatedSource::kNoLimit);

/// "greedy by size", "greedy by lifetime", "greedy by area".
[[nodiscard]] const char* greedy_name(GreedyOrder order);

} // namespace cachealloc::tools
