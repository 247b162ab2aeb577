// Everything that `cachealloc report` says about a recording, as numbers.
#pragma once

#include "tools/analysis/churn.h"
#include "tools/analysis/fragmentation.h"
#include "tools/analysis/history.h"
#include "tools/analysis/holders.h"
#include "tools/analysis/memory_stats.h"
#include "tools/analysis/peaks.h"
#include "tools/analysis/savings.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cachealloc::tools {

/// How the run ended.
enum class RunEnd : std::uint8_t {
    running, ///< it has not
    clean,   ///< through exit()
    killed,  ///< without leaving through exit(): a signal, _exit, a crash
    stopped, ///< recording ended before the process did
};

/// A request that could not be met, and who held the memory then.
struct OutOfMemory {
    Event event; ///< the latest one; `size` as asked for, `stream` what the driver had free
    std::uint64_t count = 0;
    DeviceBytes bytes;
    Fragmentation fragmentation;
    std::vector<Holder> holders;
};

/// One device at its peaks and at the end.
struct DeviceSummary {
    std::uint8_t ordinal = 0;
    std::string name;
    std::uint64_t total = 0; ///< 0: unknown
    DevicePeaks peaks;
    DeviceBytes at_live_peak;
    DeviceBytes at_reserved_peak;
    DeviceBytes at_end;
    Fragmentation fragmentation; ///< at the peak of reserved
    std::optional<KnownMemoryStats> memory_stats;
    std::vector<Holder> peak_holders;
    std::vector<Holder> end_holders;
};

/// One line of advice: what to set or do, and why.
struct Advice {
    std::string option; ///< as a user types it; empty where there is nothing to set
    std::string reason;
};

struct Summary {
    RunEnd end = RunEnd::killed;
    double seconds = 0; ///< from the recording's start to the latest moment known
    std::vector<DeviceSummary> devices;
    std::optional<OutOfMemory> out_of_memory;
    std::array<ChurnClass, 64> churn{};
    ChurnClass churn_total;
    Savings savings;
    std::vector<Advice> advice;
    std::vector<std::string> lacks; ///< what the recording does not tell, a line each
};

/// `device` is an ordinal, or -1 for all. Three passes over the history.
[[nodiscard]] Summary summarize(History& history, int device);

/// Advice for a summary that is complete but for it.
[[nodiscard]] std::vector<Advice> advice_for(const Summary& summary, const History& history);

/// What the recording lacks: lines for people.
[[nodiscard]] std::vector<std::string> lacks_of(const History& history);

} // namespace cachealloc::tools
