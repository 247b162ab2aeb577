#include "core/record/trace_clock.h"

#include <array>
#include <limits>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cachealloc {

namespace {

#if defined(__x86_64__)
/// CPUID's "invariant TSC": it counts evenly in all states of all cores.
bool invariant_tsc() {
    unsigned int eax = 0;
    unsigned int ebx = 0;
    unsigned int ecx = 0;
    unsigned int edx = 0;
    return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & 1U << 8) != 0;
}

/// The kernel has found the counter wanting on this machine (cores that disagree, as with some
/// firmware) and keeps time by a slow device instead.
bool kernel_distrusts_tsc() {
    const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                          O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    std::array<char, 64> text{};
    const ssize_t length = read(file, text.data(), text.size());
    close(file);
    if (length <= 0) return false;
    const std::string_view name(text.data(), static_cast<std::size_t>(length));
    return name.starts_with("hpet") || name.starts_with("acpi_pm") ||
           name.find("jiffies") != std::string_view::npos;
}
#endif

std::uint64_t realtime_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace

TraceClock TraceClock::choose() {
#if defined(__x86_64__)
    if (invariant_tsc() && !kernel_distrusts_tsc()) return TraceClock(trace::ClockKind::tsc);
#endif
    return TraceClock(trace::ClockKind::nanoseconds);
}

trace::ClockPair TraceClock::pair() const {
    // The narrowest of a few looks: the thread may lose its core between two clocks.
    trace::ClockPair best{};
    std::uint64_t narrowest = std::numeric_limits<std::uint64_t>::max();
    for (int i = 0; i < 3; ++i) {
        const std::uint64_t before = after_acquire();
        const std::uint64_t real = realtime_ns();
        const std::uint64_t width = after_acquire() - before;
        if (width >= narrowest) continue;
        narrowest = width;
        best = {before + width / 2, real};
    }
    return best;
}

} // namespace cachealloc
