#pragma once

#include "core/pool/size_rules.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace cachealloc {

/// A quantity that comes and goes. Invariant: current == allocated - freed, peak >= current. Not
/// thread-safe.
struct Gauge {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    std::int64_t allocated = 0; ///< all that ever came
    std::int64_t freed = 0;     ///< all that ever went

    void increase(std::int64_t by) {
        current += by;
        allocated += by;
        peak = std::max(peak, current);
    }
    void decrease(std::int64_t by) {
        current -= by;
        freed += by;
    }
    void change(std::int64_t by) { by > 0 ? increase(by) : decrease(-by); }
    /// Adds another quantity; the peak is exact where one of the two has always been 0.
    Gauge& operator+=(const Gauge& other) {
        current += other.current;
        peak += other.peak;
        allocated += other.allocated;
        freed += other.freed;
        return *this;
    }
};

/// One for each class of sizes, and one for both together, whose peak is its own.
struct GaugeSet {
    std::array<Gauge, kSizeClasses + 1> of; ///< by SizeClass

    Gauge& operator[](SizeClass which) { return of[which]; }
    const Gauge& operator[](SizeClass which) const { return of[which]; }

    void change(SizeClass which, std::int64_t by) {
        of[which].change(by);
        of[kBothClasses].change(by);
    }
    /// Both classes are at these values now. What rose and fell meanwhile is not seen.
    void set(std::int64_t small, std::int64_t large) {
        const std::int64_t small_by = small - of[kSmallClass].current;
        const std::int64_t large_by = large - of[kLargeClass].current;
        const bool small_first = small_by < large_by; // what falls goes first: no peak of both
        change(small_first ? kSmallClass : kLargeClass, small_first ? small_by : large_by);
        change(small_first ? kLargeClass : kSmallClass, small_first ? large_by : small_by);
    }
};

} // namespace cachealloc
