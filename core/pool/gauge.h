#pragma once

#include "core/pool/size_rules.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace cachealloc {

/// A quantity that comes and goes. Invariant: current == allocated - freed, peak >= current. Not
/// thread-safe. Sums wrap rather than overflow: tools count what a file says.
struct Gauge {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    std::int64_t allocated = 0; ///< all that ever came
    std::int64_t freed = 0;     ///< all that ever went

    void change(std::int64_t by) {
        current = sum(current, by, 1);
        if (by > 0) {
            allocated = sum(allocated, by, 1);
            peak = std::max(peak, current);
        } else {
            freed = sum(freed, by, -1);
        }
    }
    /// Adds another quantity; the peak is exact where one of the two has always been 0, else at
    /// most too high.
    Gauge& operator+=(const Gauge& other) {
        current = sum(current, other.current, 1);
        peak = sum(peak, other.peak, 1);
        allocated = sum(allocated, other.allocated, 1);
        freed = sum(freed, other.freed, 1);
        return *this;
    }

  private:
    static std::int64_t sum(std::int64_t a, std::int64_t b, std::int64_t sign) {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) +
                                         static_cast<std::uint64_t>(sign) *
                                             static_cast<std::uint64_t>(b));
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
