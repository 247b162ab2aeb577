#include "core/record/device_totals.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace cachealloc;
using trace::DeviceCounters;

namespace {

struct Devices {
    std::unique_ptr<DeviceCounters[]> counters =
        std::make_unique<DeviceCounters[]>(trace::kDevices);
    DeviceTotals totals{counters.get()};
};

} // namespace

TEST_CASE("device totals: with one thread all is exact once it is flushed", "[record]") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Devices devices;
    DeviceBatch batch{};
    std::vector<std::int64_t> blocks;
    std::int64_t live = 0;
    std::int64_t peak = 0;
    std::uint64_t peak_time = 0;
    for (std::uint64_t time = 1; time <= 20000; ++time) {
        if (blocks.size() < 20 && random() % 2 == 0) {
            blocks.push_back(static_cast<std::int64_t>(random() % 30000));
            live += blocks.back();
            devices.totals.change(batch, 3, DeviceQuantity::live, blocks.back(), time);
        } else if (!blocks.empty()) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            live -= blocks.back();
            devices.totals.change(batch, 3, DeviceQuantity::live, -blocks.back(), time);
            blocks.pop_back();
        }
        if (live > peak) {
            peak = live;
            peak_time = time;
        }
        const std::int64_t held_back = live - devices.counters[3].live;
        if (held_back >= 65536 || held_back <= -65536) FAIL("too much is held back");
    }
    devices.totals.flush(batch);
    CHECK(devices.counters[3].live == live);
    CHECK(devices.counters[3].live_peak == peak);
    CHECK(devices.counters[3].live_peak_time == peak_time);
    CHECK(devices.counters[0].live == 0);
}

TEST_CASE("device totals: large changes are seen at once, each quantity in its place", "[record]") {
    Devices devices;
    DeviceBatch batch{};
    devices.totals.change(batch, 0, DeviceQuantity::live, 65536, 1);
    CHECK(devices.counters[0].live == 65536);
    CHECK(devices.counters[0].live_peak == 65536);
    devices.totals.change(batch, 0, DeviceQuantity::pooled, 1000, 2);
    devices.totals.change(batch, 0, DeviceQuantity::reserved, 2 << 20, 3);
    devices.totals.change(batch, 0, DeviceQuantity::host, 70000, 4);
    CHECK(devices.counters[0].live_pooled == 1000);
    CHECK(devices.counters[0].reserved == 2 << 20);
    CHECK(devices.counters[0].reserved_peak_time == 3);
    CHECK(devices.counters[0].host_peak == 70000);
    devices.totals.change(batch, 0, DeviceQuantity::host, -70000, 5);
    CHECK(devices.counters[0].host == 0);
    CHECK(devices.counters[0].host_peak == 70000);
}

TEST_CASE("device totals: a batch is for one device at a time, and none beyond the table",
          "[record]") {
    Devices devices;
    DeviceBatch batch{};
    devices.totals.change(batch, 1, DeviceQuantity::live, 100, 1);
    devices.totals.change(batch, 2, DeviceQuantity::live, 200, 2);
    CHECK(devices.counters[1].live == 100);
    devices.totals.change(batch, 64, DeviceQuantity::live, 1 << 20, 3);
    devices.totals.change(batch, 255, DeviceQuantity::live, 1 << 20, 3);
    devices.totals.flush(batch);
    CHECK(devices.counters[2].live == 200);
    CHECK(devices.counters[63].live == 0);
}

TEST_CASE("device totals: many threads add up", "[record]") {
    Devices devices;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([&] {
            DeviceBatch batch{};
            for (std::uint64_t i = 0; i < 5000; ++i) {
                devices.totals.change(batch, 0, DeviceQuantity::live, 1000, i);
                if (i % 2 == 0) devices.totals.change(batch, 0, DeviceQuantity::live, -900, i);
            }
            devices.totals.flush(batch);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(devices.counters[0].live == 4 * (5000 * 1000 - 2500 * 900));
    CHECK(devices.counters[0].live_peak >= devices.counters[0].live);
}

TEST_CASE("device totals: what a device is", "[record]") {
    Devices devices;
    devices.totals.set_device(5, "A device", 1 << 30);
    CHECK(std::string(devices.counters[5].name) == "A device");
    CHECK(devices.counters[5].total == 1 << 30);
    devices.totals.set_device(5, std::string(100, 'n'), 7);
    CHECK(std::string(devices.counters[5].name) == std::string(63, 'n'));
    devices.totals.set_device(64, "beyond", 7);
}
