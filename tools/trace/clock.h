#pragma once

#include "tools/trace/trace_file.h"

#include <cstdint>

namespace cachealloc::tools {

/// Converts the recording's ticks to nanoseconds, by the two moments that the header knows.
class Clock {
  public:
    explicit Clock(const TraceHeader& header);

    /// Nanoseconds since the recording began; negative before. O(1), like all here.
    [[nodiscard]] double since_start(std::uint64_t ticks) const;
    /// Nanoseconds since 1970; 0 for what lies before, or centuries away.
    [[nodiscard]] std::uint64_t epoch_ns(std::uint64_t ticks) const;
    /// A length of time, in nanoseconds.
    [[nodiscard]] double duration(std::uint64_t ticks) const {
        return static_cast<double>(ticks) * tick_ns_;
    }
    [[nodiscard]] double tick_ns() const { return tick_ns_; }
    /// False where the header holds no two moments apart, so that the length of a tick is a guess.
    [[nodiscard]] bool certain() const { return certain_; }

  private:
    trace::ClockPair start_;
    double tick_ns_ = 1;
    bool certain_ = true;
};

} // namespace cachealloc::tools
