#pragma once

#include "core/record/trace_format.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cachealloc {

enum class DeviceQuantity : std::uint8_t { live, pooled, reserved, host };
inline constexpr std::size_t kDeviceQuantities = 4;

/// What one thread has not added to the counters yet. Zero: nothing.
struct DeviceBatch {
    std::array<std::int64_t, kDeviceQuantities> pending;
    std::array<std::int64_t, kDeviceQuantities> highest; ///< of `pending` since the last flush
    std::array<std::uint64_t, kDeviceQuantities> highest_time;
    std::uint8_t device;
};

/// The bytes on each device, now and at their peaks.
///
/// Invariant: counters and what the threads' batches hold back add up to the truth, and no batch
/// holds back 64 KiB of anything. A peak takes in how high a batch rose before it was flushed, so
/// that with one thread it is exact.
///
/// Lock-free; a batch is its thread's own.
class DeviceTotals {
  public:
    /// `counters`: kDevices of them, zeroed.
    explicit DeviceTotals(trace::DeviceCounters* counters) : counters_(counters) {}

    /// `bytes` more (or less, where negative) of that. Devices beyond the table are left out. O(1).
    void change(DeviceBatch& batch, std::uint8_t device, DeviceQuantity what, std::int64_t bytes,
                std::uint64_t time);
    /// Adds what the batch holds back.
    void flush(DeviceBatch& batch);
    /// `name` is cut at 63 bytes.
    void set_device(std::uint32_t device, std::string_view name, std::uint64_t total_bytes);

  private:
    static constexpr std::int64_t kFlushBytes = 64 << 10;

    trace::DeviceCounters* const counters_;
};

} // namespace cachealloc
