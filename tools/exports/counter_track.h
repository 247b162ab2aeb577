// A counter over time, with no more points than can be seen.
#pragma once

#include <cstdint>
#include <functional>

namespace cachealloc::tools {

/// Takes every change of a counter and gives on at most four points of each span of time: the
/// first value, the lowest, the highest and the last, in the order of their times. No peak is lost.
class CounterTrack {
  public:
    using Emit = std::function<void(std::uint64_t time, std::uint64_t value)>;

    /// Times are grouped by `span` (> 0).
    CounterTrack(std::uint64_t span, Emit emit) : span_(span), emit_(std::move(emit)) {}

    void add(std::uint64_t time, std::uint64_t value);
    /// Gives on what it still holds.
    void flush();

  private:
    struct Point {
        std::uint64_t time = 0;
        std::uint64_t value = 0;
        std::uint64_t order = 0; ///< of the changes in the span
    };

    std::uint64_t span_;
    Emit emit_;
    Point first_, lowest_, highest_, last_;
    std::uint64_t count_ = 0; ///< changes in the span
};

} // namespace cachealloc::tools
