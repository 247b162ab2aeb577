#pragma once

#include "tools/commands/tables.h"
#include "tools/replay/pool_replay.h"

#include <optional>
#include <string>
#include <vector>

namespace cachealloc::tools {

enum class ReplayPolicy : std::uint8_t { ours, pytorch, pytorch_expandable, greedy };

struct ReplayOptions {
    std::vector<std::string> files;  ///< empty: the newest recording
    std::optional<std::string> conf; ///< left out: as recorded, or the defaults
    ReplayPolicy policy = ReplayPolicy::ours;
    std::uint64_t limit = SimulatedSource::kNoLimit;
    unsigned steps = kDefaultSteps;
    int pool = -1; ///< of a recording; -1: the one with the largest live peak
    bool json = false;
};

/// `cachealloc replay`: what the pool, or another policy, makes of recorded allocations. Gives the
/// exit code (kFindings where one does not fit the limit); throws TraceError.
int replay_main(const ReplayOptions& options);

/// The text of CACHEALLOC_CONF that a sequence was recorded under; empty for the defaults.
[[nodiscard]] std::string recorded_conf(const AllocationSequence& sequence);
/// What was recorded of the device itself; null where nothing was.
[[nodiscard]] Json recorded_json(const AllocationSequence& sequence);
[[nodiscard]] Json replay_json(const ReplayResult& result);
/// "1.024".
[[nodiscard]] std::string ratio_text(double ratio);

} // namespace cachealloc::tools
