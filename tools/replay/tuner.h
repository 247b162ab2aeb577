#pragma once

#include "tools/replay/pool_replay.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

struct TuneSettings {
    double most_calls = 2; ///< driver calls that a steady step may make
    unsigned steps = kDefaultSteps;
    std::string kept; ///< options that stay as they are, as CACHEALLOC_CONF would say them
    /// Called with the share of the search that is done, 0 .. 1.
    std::function<void(double)> progress;
};

/// Options and what comes of them.
struct Tuned {
    std::string conf; ///< for CACHEALLOC_CONF; empty for the defaults
    ReplayResult result;
    bool within = false; ///< it fits the device and keeps the bound on driver calls
};

struct TuneOutcome {
    Tuned standard; ///< the defaults, without expandable segments
    Tuned tuned;
    Tuned expandable; ///< the defaults, with them
    Tuned expandable_tuned;
    unsigned replays = 0;

    /// What reserves least within the bound; without expandable segments where that is as good.
    [[nodiscard]] const Tuned& best() const;
};

/// Searches the options that decide where memory is placed for the least peak of reserved memory
/// within the bound: one option at a time, the best of its values kept, until nothing helps by more
/// than a thousandth; then options that do not matter are dropped. Some 50 to 200 replays.
[[nodiscard]] TuneOutcome tune(const AllocationSequence& sequence, const TuneSettings& settings);

/// Of options written in full, those that are not defaults and that tune() does not search.
[[nodiscard]] std::string options_to_keep(std::string_view conf);

} // namespace cachealloc::tools
