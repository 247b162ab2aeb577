#pragma once

#include "core/record/trace_format.h"

#include <cstdint>

#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace cachealloc {

/// The clock of a recording: the processor's own counter where it runs evenly on all cores
/// (9 ns instead of 22 ns a look), else CLOCK_MONOTONIC in nanoseconds. A plain value, constant
/// once made, usable by any thread; no function fails.
///
/// Invariant: if one thread looks with before_release(), then gives memory away, and another
/// acquires that memory and looks with after_acquire(), the second time is not the earlier one:
/// so the order of times is the order of ownership.
class TraceClock {
  public:
    /// The best clock of this machine. Reads one file of the kernel.
    static TraceClock choose();
    explicit TraceClock(trace::ClockKind kind) : kind_(kind) {}

    trace::ClockKind kind() const { return kind_; }

    /// Not before any earlier load of the thread: rdtscp waits for them, rdtsc does not.
    std::uint64_t after_acquire() const {
#if defined(__x86_64__)
        unsigned int core = 0;
        if (kind_ == trace::ClockKind::tsc) return __rdtscp(&core);
#endif
        return monotonic_ns();
    }

    /// Not after any later store of the thread gets visible: stores wait for what is before them.
    std::uint64_t before_release() const {
#if defined(__x86_64__)
        if (kind_ == trace::ClockKind::tsc) return __rdtsc();
#endif
        return monotonic_ns();
    }

    /// This moment on both clocks, to some 100 ns.
    trace::ClockPair pair() const;

    static std::uint64_t monotonic_ns() {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
               static_cast<std::uint64_t>(now.tv_nsec);
    }

  private:
    trace::ClockKind kind_;
};

} // namespace cachealloc
