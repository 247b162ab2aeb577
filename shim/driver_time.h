// Time spent in the driver's own functions: they take microseconds, a look at the clock 25 ns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cachealloc::shim {

// Adds the time of its scope.
class DriverTime {
  public:
    explicit DriverTime(std::atomic<std::uint64_t>& ns) : ns_(ns) {}
    ~DriverTime() {
        const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin_;
        ns_.fetch_add(static_cast<std::uint64_t>(spent.count()), std::memory_order_relaxed);
    }
    DriverTime(const DriverTime&) = delete;
    DriverTime& operator=(const DriverTime&) = delete;

  private:
    std::atomic<std::uint64_t>& ns_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

} // namespace cachealloc::shim
