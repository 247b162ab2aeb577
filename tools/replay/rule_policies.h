// Placement by other allocators' rules, to compare with.
#pragma once

#include "tools/replay/pool_replay.h"

namespace cachealloc::tools {

enum class Rules : std::uint8_t {
    /// PyTorch's caching allocator as it comes: segments of 2 MiB for requests up to 1 MiB, 20 MiB
    /// for those below 10 MiB, else a multiple of 2 MiB; best fit; a rest is split off from 512
    /// bytes in small segments, above 1 MiB in large ones; where the limit is met, wholly free
    /// segments go back.
    pytorch,
    /// The same with expandable_segments: two ranges that only grow at their ends, in pages of 2
    /// and 20 MiB; what they have once is never given back here.
    pytorch_expandable,
    /// One range that grows by the byte, its free end used last: what best fit alone comes to.
    one_range,
};

/// Places the sequence by those rules, every release settled at once and streams not told apart.
/// Ends at the first request that does not fit `limit`. O(events log blocks).
[[nodiscard]] ReplayResult replay_rules(const AllocationSequence& sequence, Rules rules,
                                        unsigned steps = kDefaultSteps,
                                        std::uint64_t limit = SimulatedSource::kNoLimit);

/// "pytorch", "pytorch-expandable", "one-range".
[[nodiscard]] const char* rules_name(Rules rules);

} // namespace cachealloc::tools
