#pragma once

#include "core/options.h"
#include "tools/replay/allocation_sequence.h"
#include "tools/replay/replay_result.h"

#include <cstdint>
#include <functional>

namespace cachealloc::tools {

inline constexpr unsigned kDefaultSteps = 30;

struct ReplaySettings {
    Options options{};
    /// Bytes of memory; kNoLimit: as many as the device of a recording has.
    std::uint64_t limit = SimulatedSource::kNoLimit;
    unsigned steps = kDefaultSteps; ///< into which the allocations are divided
    bool fragmentation = true;      ///< a second pass up to the peak
};

/// Runs a sequence through the pool itself, on memory that is only counted, on the calling thread.
/// Releases that the sequence calls settled are so at once; others settle where it says. Ends at
/// the first request for which there is no memory. Throws std::logic_error if the pool breaks a
/// rule of its memory source. O(events).
[[nodiscard]] ReplayResult replay_pool(const AllocationSequence& sequence,
                                       const ReplaySettings& settings);

/// What replays have in common: which event begins the steady part, and the steps in it.
struct SteadyPart {
    SteadyPart(const AllocationSequence& sequence, unsigned steps);
    std::size_t begin = 0;
    double steps = 0;
};

/// `later` less `earlier`, count by count.
[[nodiscard]] DriverCalls calls_since(const DriverCalls& later, const DriverCalls& earlier);

} // namespace cachealloc::tools
