#include "tools/trace/clock.h"

namespace cachealloc::tools {

namespace {

// What a tick of the time stamp counter of a server lasts, about, where nothing tells.
constexpr double kUsualTickNs = 0.4;
// No counter ticks faster or slower than this; other quotients are damaged.
constexpr double kShortestTickNs = 0.05;
constexpr double kLongestTickNs = 1000;

} // namespace

Clock::Clock(const TraceHeader& header) : start_(header.start) {
    if (header.clock == trace::ClockKind::nanoseconds) return;
    const bool apart =
        header.latest.ticks > start_.ticks && header.latest.realtime_ns > start_.realtime_ns;
    if (apart) {
        tick_ns_ = static_cast<double>(header.latest.realtime_ns - start_.realtime_ns) /
                   static_cast<double>(header.latest.ticks - start_.ticks);
    }
    certain_ = apart && tick_ns_ >= kShortestTickNs && tick_ns_ <= kLongestTickNs;
    if (!certain_) tick_ns_ = kUsualTickNs;
}

double Clock::since_start(std::uint64_t ticks) const {
    return ticks >= start_.ticks ? duration(ticks - start_.ticks) : -duration(start_.ticks - ticks);
}

std::uint64_t Clock::epoch_ns(std::uint64_t ticks) const {
    // The distance alone goes through a double, which is exact to a nanosecond for 100 days.
    const double distance = since_start(ticks);
    constexpr double kFarthest = 9e18;
    if (distance <= -kFarthest || distance >= kFarthest) return 0;
    const auto whole = static_cast<std::int64_t>(distance);
    const std::uint64_t at = start_.realtime_ns + static_cast<std::uint64_t>(whole);
    const bool wrapped = whole < 0 ? at > start_.realtime_ns : at < start_.realtime_ns;
    return wrapped ? 0 : at;
}

} // namespace cachealloc::tools
