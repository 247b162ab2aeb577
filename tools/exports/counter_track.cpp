#include "tools/exports/counter_track.h"

#include <algorithm>
#include <array>

namespace cachealloc::tools {

void CounterTrack::add(std::uint64_t time, std::uint64_t value) {
    if (count_ != 0 && time / span_ != first_.time / span_) {
        flush();
    }
    last_ = {time, value, count_};
    if (count_ == 0) {
        first_ = lowest_ = highest_ = last_;
    }
    if (value < lowest_.value) {
        lowest_ = last_;
    }
    if (value > highest_.value) {
        highest_ = last_;
    }
    ++count_;
}

void CounterTrack::flush() {
    if (count_ == 0) {
        return;
    }
    std::array<Point, 4> points = {first_, lowest_, highest_, last_};
    std::ranges::sort(points, {}, &Point::order);
    for (std::size_t at = 0; at < points.size(); ++at) {
        if (at == 0 || points[at].order != points[at - 1].order) {
            emit_(points[at].time, points[at].value);
        }
    }
    count_ = 0;
}

} // namespace cachealloc::tools
