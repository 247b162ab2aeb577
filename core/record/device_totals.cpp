#include "core/record/device_totals.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace cachealloc {

using trace::DeviceCounters;

namespace {

using Bytes = std::atomic<std::int64_t> DeviceCounters::*;
using Time = std::atomic<std::uint64_t> DeviceCounters::*;

/// By DeviceQuantity; null where the file keeps none.
struct Fields {
    Bytes now;
    Bytes peak;
    Time peak_time;
};
constexpr std::array<Fields, kDeviceQuantities> kFields = {{
    {&DeviceCounters::live, &DeviceCounters::live_peak, &DeviceCounters::live_peak_time},
    {&DeviceCounters::live_pooled, nullptr, nullptr},
    {&DeviceCounters::reserved, &DeviceCounters::reserved_peak,
     &DeviceCounters::reserved_peak_time},
    {&DeviceCounters::host, &DeviceCounters::host_peak, nullptr},
}};

} // namespace

void DeviceTotals::change(DeviceBatch& batch, std::uint8_t device, DeviceQuantity what,
                          std::int64_t bytes, std::uint64_t time) {
    if (device >= trace::kDevices) return;
    if (batch.device != device) {
        flush(batch);
        batch.device = device;
    }
    const auto i = static_cast<std::size_t>(what);
    std::int64_t& pending = batch.pending[i];
    pending += bytes;
    if (pending > batch.highest[i]) {
        batch.highest[i] = pending;
        batch.highest_time[i] = time;
    }
    if (pending >= kFlushBytes || pending <= -kFlushBytes || batch.highest[i] >= kFlushBytes)
        flush(batch);
}

void DeviceTotals::flush(DeviceBatch& batch) {
    DeviceCounters& counters = counters_[batch.device];
    for (std::size_t i = 0; i < kDeviceQuantities; ++i) {
        const Fields& fields = kFields[i];
        if (batch.pending[i] == 0 && batch.highest[i] == 0) continue;
        const std::int64_t before =
            (counters.*fields.now).fetch_add(batch.pending[i], std::memory_order_relaxed);
        if (fields.peak != nullptr) {
            const std::int64_t reached = before + batch.highest[i];
            std::atomic<std::int64_t>& peak = counters.*fields.peak;
            std::int64_t known = peak.load(std::memory_order_relaxed);
            bool risen = false;
            while (known < reached && !risen)
                risen = peak.compare_exchange_weak(known, reached, std::memory_order_relaxed);
            if (risen && fields.peak_time != nullptr)
                (counters.*fields.peak_time)
                    .store(batch.highest_time[i], std::memory_order_relaxed);
        }
        batch.pending[i] = 0;
        batch.highest[i] = 0;
    }
}

void DeviceTotals::set_device(std::uint32_t device, std::string_view name,
                              std::uint64_t total_bytes) {
    if (device >= trace::kDevices) return;
    DeviceCounters& counters = counters_[device];
    counters.total = total_bytes;
    const std::size_t length = std::min(name.size(), sizeof counters.name - 1);
    std::memcpy(counters.name, name.data(), length);
    counters.name[length] = '\0';
}

} // namespace cachealloc
