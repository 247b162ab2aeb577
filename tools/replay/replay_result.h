#pragma once

#include "tools/analysis/fragmentation.h"
#include "tools/replay/simulated_source.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cachealloc::tools {

/// The first request that a limit on memory left unmet.
struct ReplayFailure {
    std::uint64_t event = 0; ///< its place in the sequence, from 0
    std::uint64_t bytes = 0; ///< as asked for
    std::uint64_t live = 0;  ///< as asked for
    std::uint64_t reserved = 0;
    std::uint64_t largest_free = 0; ///< the largest piece that could be handed out
    std::uint64_t limit = 0;        ///< bytes of memory that there were
};

/// What a policy made of a sequence. All bytes of memory; up to the failure, if there was one.
struct ReplayResult {
    std::string policy;
    std::uint64_t events = 0;
    std::uint64_t allocations = 0;
    std::uint64_t peak_requested = 0; ///< live bytes, as asked for
    std::uint64_t peak_rounded = 0;   ///< live bytes, as handed out
    std::uint64_t peak_reserved = 0;
    DriverCalls calls;
    DriverCalls steady;      ///< of them, after the first third of the events
    double steady_steps = 0; ///< steps in that part; 0: too short
    std::uint64_t splits = 0;
    std::uint64_t stitches = 0;                 ///< second mappings made
    std::uint64_t affinity_hits = 0;            ///< requests that got the place they had before
    double seconds = 0;                         ///< of the pass itself
    std::optional<Fragmentation> fragmentation; ///< when most was reserved
    std::optional<ReplayFailure> failure;

    [[nodiscard]] bool fits() const { return !failure.has_value(); }
    /// Peak reserved by peak live.
    [[nodiscard]] double ratio() const {
        return peak_requested == 0
                   ? 0
                   : static_cast<double>(peak_reserved) / static_cast<double>(peak_requested);
    }
    [[nodiscard]] double per_step(std::uint64_t count) const {
        return steady_steps <= 0 ? 0 : static_cast<double>(count) / steady_steps;
    }
};

} // namespace cachealloc::tools
