#include "tools/trace/tables.h"

#include "tests/tools/temporary_file.h"
#include "tests/tools/trace_builder.h"
#include "tools/trace/clock.h"
#include "tools/trace/stacks.h"

#include <catch2/catch.hpp>

using cachealloc::tests::EventDetails;
using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;
namespace trace = cachealloc::trace;

TEST_CASE("threads, devices, statistics and settings come as they were written") {
    TraceBuilder builder;
    builder.thread("main", 77);
    builder.thread("evil\x1b", 78);
    builder.device(2, "H200", 1000);
    builder.alloc(0, 300);
    builder.statistic("frees", 5);
    builder.setting("exe", "/bin/x");
    builder.setting("conf", "a");
    builder.setting("conf", "b\n");
    const TemporaryFile written(builder.bytes());
    const TraceFile file(written.path());

    const Threads threads(file);
    REQUIRE(threads.all().size() == 2);
    CHECK(threads.find(1)->os_id == 77);
    CHECK(threads.find(2)->name == "evil?");
    CHECK(threads.find(3) == nullptr);
    CHECK(threads.find(0) == nullptr);

    const Devices devices(file);
    REQUIRE(devices.all().size() == 2); // the second one was neither used nor named
    CHECK(devices.find(0)->live_peak == 300);
    CHECK(devices.find(1) == nullptr);
    CHECK(devices.find(2)->total == 1000);

    const Statistics statistics(file);
    CHECK(statistics["frees"] == 5);
    CHECK(statistics["allocations"] == 0);
    CHECK_FALSE(statistics.has("allocations"));

    const Settings settings(file);
    CHECK(settings["exe"] == "/bin/x");
    CHECK(settings["conf"] == "b?");
    CHECK(settings["nothing"].empty());
    CHECK(settings.all().size() == 2);
}

TEST_CASE("stacks are found by their numbers, whatever these are") {
    TraceBuilder builder;
    builder.module("/bin/x", 0, 0x1000, 0x2000);
    const std::uint32_t first = builder.stack({0x1001, 0x1002, 0x1003});
    const std::uint32_t second = builder.stack({0x1004}, true);
    EventDetails details;
    details.stack = second;
    builder.alloc(0, 300, details);
    std::vector<std::byte> bytes = builder.bytes();

    SECTION("sound") {
        const TemporaryFile written(bytes);
        const Stacks stacks{TraceFile(written.path())};
        CHECK(stacks.used() == 2);
        CHECK(stacks.damaged() == 0);
        const Stack found = stacks.find(first);
        REQUIRE(found.frames.size() == 3);
        CHECK(found.frames[2] == 0x1003);
        CHECK(found.modules == 1);
        CHECK_FALSE(found.cut);
        CHECK(stacks.find(second).cut);
        CHECK(stacks.find(second).allocations == 1);
        CHECK(stacks.find(second).bytes == 300);
        for (const std::uint32_t number : {0U, 3U, ~0U})
            CHECK(stacks.find(number).frames.empty());
    }
    SECTION("with frames that are not there") {
        const auto& header = *reinterpret_cast<const trace::Header*>(bytes.data());
        for (const trace::Section& section : header.sections) {
            if (section.type != trace::SectionType::stacks) continue;
            reinterpret_cast<trace::StackSlot*>(&bytes[section.offset])[0].frames = 5;
            reinterpret_cast<trace::StackSlot*>(&bytes[section.offset])[1].first = ~0U;
        }
        const TemporaryFile written(bytes);
        const Stacks stacks{TraceFile(written.path())};
        CHECK(stacks.damaged() == 2);
        CHECK(stacks.find(first).frames.empty());
        CHECK(stacks.find(second).frames.empty());
    }
}

TEST_CASE("ticks become times by two moments") {
    TraceHeader header;
    header.clock = trace::ClockKind::tsc;
    header.start = {1000, 5'000'000'000};
    header.latest = {1000 + 2'000'000'000, 6'000'000'000}; // 2 GHz
    const Clock clock(header);
    CHECK(clock.certain());
    CHECK(clock.tick_ns() == 0.5);
    CHECK(clock.since_start(3000) == 1000);
    CHECK(clock.since_start(0) == -500);
    CHECK(clock.epoch_ns(3000) == 5'000'001'000);
    CHECK(clock.epoch_ns(0) == 4'999'999'500);
    CHECK(clock.epoch_ns(~std::uint64_t{0}) == 0);

    header.latest = header.start;
    CHECK_FALSE(Clock(header).certain());
    header.latest = {1001, 6'000'000'000}; // a tick of a second
    CHECK_FALSE(Clock(header).certain());
    header.clock = trace::ClockKind::nanoseconds;
    CHECK(Clock(header).certain());
    CHECK(Clock(header).duration(7) == 7);
}
