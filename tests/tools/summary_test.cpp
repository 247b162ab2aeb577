#include "tests/tools/example_recording.h"
#include "tests/tools/temporary_file.h"
#include "tools/analysis/summary.h"

#include <catch2/catch.hpp>

#include <algorithm>

using cachealloc::tests::EventDetails;
using cachealloc::tests::kMiB;
using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;
namespace trace = cachealloc::trace;

namespace {

template <class Fill>
Summary summary_of(Fill fill) {
    TraceBuilder builder;
    fill(builder);
    const TemporaryFile file(builder.bytes());
    const Trace trace(file.path());
    History history(trace);
    return summarize(history, -1);
}

bool advises(const Summary& summary, std::string_view option) {
    return std::any_of(summary.advice.begin(), summary.advice.end(), [&](const Advice& advice) {
        return advice.option.find(option) != std::string::npos;
    });
}

} // namespace

TEST_CASE("the summary of the example is what its table says") {
    const Summary summary = summary_of(cachealloc::tests::example_recording);
    REQUIRE(summary.devices.size() == 1);
    const DeviceSummary& device = summary.devices[0];
    CHECK(summary.end == RunEnd::clean);
    CHECK(device.name == "H200");
    CHECK(device.peaks.live.bytes == 59 * kMiB);
    CHECK(device.peaks.live.time == TraceBuilder::kStart + 7000);
    CHECK(device.at_live_peak.reserved == 96 * kMiB);
    CHECK(device.peaks.reserved.bytes == 160 * kMiB);
    CHECK(device.peaks.reserved.time == TraceBuilder::kStart + 10000);
    CHECK_FALSE(device.peaks.live_before_window);
    CHECK(device.at_end.live == 9 * kMiB);

    REQUIRE(device.peak_holders.size() == 2);
    CHECK(device.peak_holders[0].bytes == 54 * kMiB); // A, C and M
    CHECK(device.peak_holders[0].blocks == 3);
    CHECK(device.peak_holders[0].largest == 30 * kMiB);
    CHECK(device.peak_holders[0].oldest == TraceBuilder::kStart + 2000);
    CHECK(device.peak_holders[1].bytes == 5 * kMiB); // B and D

    const Fragmentation& is = device.fragmentation;
    CHECK(is.reserved == 160 * kMiB);
    CHECK(is.live == 5 * kMiB);
    CHECK(is.rounding == 1 * kMiB);
    CHECK(is.hard == (46 + 28) * kMiB);
    CHECK(is.soft == 64 * kMiB);
    CHECK(is.stream == 16 * kMiB);
    CHECK(is.outside == 0);
    CHECK(is.segments == 3);
    CHECK(is.largest_free == 64 * kMiB);
    REQUIRE(is.pins.size() == 2);
    CHECK(is.pins[0].segment.address == 0);
    CHECK(is.pins[0].free == 46 * kMiB);
    CHECK(is.pins[0].oldest.address == 16 * kMiB);
    CHECK(is.pins[1].segment.address == 128 * kMiB);
    CHECK(is.pins[1].free == 28 * kMiB);

    REQUIRE(summary.out_of_memory.has_value());
    CHECK(summary.out_of_memory->count == 1);
    CHECK(summary.out_of_memory->event.size == 100 * kMiB);
    CHECK(summary.out_of_memory->event.stream == 3 * kMiB);
    REQUIRE(summary.out_of_memory->holders.size() == 2);
    CHECK(summary.out_of_memory->holders[0].bytes == 8 * kMiB);

    CHECK(summary.churn_total.allocations == 5);
    CHECK(summary.churn_total.frees == 3);
    CHECK(summary.churn[22].allocations == 1); // D: 4 MiB
    CHECK(summary.churn[22].mean_lifetime() == 4000);
    CHECK(summary.churn[24].allocations == 2); // A and C: 16 and 30 MiB
    CHECK(summary.churn[24].mean_lifetime() == 5500);

    CHECK(summary.savings.alloc_calls == 1);
    CHECK(summary.savings.free_calls == 3);
    CHECK(summary.savings.waits == 3);
    CHECK(summary.savings.alloc_call_ns == 100'000);
    CHECK(summary.savings.saved_ns == 100'000);
    CHECK(summary.lacks.empty());
}

TEST_CASE("blocks outside all known segments are said to be so") {
    const Summary summary = summary_of([](TraceBuilder& builder) {
        builder.segment_alloc(64 * kMiB, 64 * kMiB);
        builder.alloc(0, kMiB);              // below
        builder.alloc(64 * kMiB, kMiB);      // in it
        builder.alloc(128 * kMiB, 2 * kMiB); // behind
    });
    CHECK(summary.devices[0].fragmentation.outside == 3 * kMiB);
    CHECK(summary.devices[0].fragmentation.hard == 63 * kMiB);
}

TEST_CASE("a peak that the ring forgot is named by the counters") {
    const Summary summary = summary_of([](TraceBuilder& builder) {
        builder.ring_chunks(2);
        builder.alloc(0, 500 * kMiB);
        builder.free(0);
        for (int i = 0; i < 200; ++i) {
            builder.alloc(0, kMiB);
            builder.free(0);
        }
    });
    CHECK(summary.devices[0].peaks.live.bytes == kMiB);
    CHECK(summary.devices[0].peaks.live_before_window);
    CHECK_FALSE(summary.lacks.empty());
    CHECK(advises(summary, "ring_mb:"));
}

TEST_CASE("each device has its own peak") {
    const Summary summary = summary_of([](TraceBuilder& builder) {
        EventDetails other;
        other.device = 3;
        builder.alloc(0, 5 * kMiB);
        builder.alloc(kMiB << 10, 7 * kMiB, other);
        builder.free(0);
        builder.alloc(kMiB << 11, 7 * kMiB, other);
    });
    REQUIRE(summary.devices.size() == 2);
    CHECK(summary.devices[0].peaks.live.bytes == 5 * kMiB);
    CHECK(summary.devices[1].ordinal == 3);
    CHECK(summary.devices[1].peaks.live.bytes == 14 * kMiB);
    CHECK(summary.devices[1].peak_holders[0].blocks == 2);
}

TEST_CASE("advice follows from what was seen") {
    const auto waits = [](std::uint64_t ns) {
        return summary_of([ns](TraceBuilder& builder) {
            builder.statistic("allocations", 100'000);
            builder.statistic("native_waits", 10);
            builder.statistic("native_wait_ns", ns);
            builder.at(TraceBuilder::kStart + 1'000'000'000); // a run of a second
            builder.alloc(0, kMiB);
        });
    };
    CHECK(advises(waits(500'000'000), "free:async"));
    CHECK_FALSE(advises(waits(1'000'000), "free:async"));
    CHECK(advises(waits(0), "stacks:alloc")); // there is none

    const Summary idle = summary_of([](TraceBuilder& builder) {
        builder.statistic("allocations", 12);
        builder.alloc(0, kMiB);
    });
    CHECK(std::any_of(idle.advice.begin(), idle.advice.end(), [](const Advice& advice) {
        return advice.option.empty() && advice.reason.find("12 times") != std::string::npos;
    }));

    const Summary fragmented = summary_of([](TraceBuilder& builder) {
        builder.segment_alloc(0, 1024 * kMiB);
        builder.alloc(512 * kMiB, 32 * kMiB);
    });
    CHECK(advises(fragmented, "max_split_size_mb:"));
    CHECK_FALSE(advises(fragmented, "slack_mb"));
}
