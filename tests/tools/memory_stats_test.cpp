// What the events say of torch.cuda.memory_stats(), each expectation by PyTorch's rules.
#include "tests/tools/example_recording.h"
#include "tests/tools/temporary_file.h"
#include "tools/analysis/memory_stats.h"
#include "tools/commands/memory_table.h"

#include <catch2/catch.hpp>

using cachealloc::kBothClasses;
using cachealloc::kLargeClass;
using cachealloc::kSmallClass;
using cachealloc::tests::EventDetails;
using cachealloc::tests::kMiB;
using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;
namespace trace = cachealloc::trace;

namespace {

constexpr auto kMi = static_cast<std::int64_t>(kMiB);

template <class Fill>
std::optional<KnownMemoryStats> stats_of(Fill fill) {
    TraceBuilder builder;
    fill(builder);
    const TemporaryFile file(builder.bytes());
    const Trace trace(file.path());
    History history(trace);
    MemoryStatsCounter counter;
    history.visit(counter);
    return memory_stats_of(history, counter, 0);
}

bool is(const cachealloc::Gauge& gauge, std::int64_t current, std::int64_t peak,
        std::int64_t allocated, std::int64_t freed) {
    return gauge.current == current && gauge.peak == peak && gauge.allocated == allocated &&
           gauge.freed == freed;
}

} // namespace

TEST_CASE("memory_stats of the example are what its table says") {
    const auto known = stats_of(cachealloc::tests::example_recording);
    REQUIRE(known.has_value());
    CHECK(known->from_events);
    const cachealloc::MemoryStats& stats = known->values;
    // A 16, B 1 rounded to 2, C 30, D 4; A, C and D are freed, A is active until its completion.
    CHECK(is(stats.allocation[kBothClasses], 1, 4, 4, 3));
    CHECK(is(stats.allocation[kSmallClass], 1, 1, 1, 0));
    CHECK(is(stats.allocated_bytes[kBothClasses], 2 * kMi, 52 * kMi, 52 * kMi, 50 * kMi));
    CHECK(is(stats.requested_bytes[kBothClasses], kMi, 51 * kMi, 51 * kMi, 50 * kMi));
    CHECK(is(stats.active[kLargeClass], 0, 3, 3, 3));
    CHECK(is(stats.segment[kLargeClass], 3, 3, 3, 0));
    CHECK(is(stats.reserved_bytes[kBothClasses], 160 * kMi, 160 * kMi, 160 * kMi, 0));
    // [0, 64): A leaves 48, B takes 2 at its start, C parts it: [18, 32) and [62, 64). [128, 160):
    // D leaves 28. Freed C joins both to [18, 64), freed D leaves nothing active, A's [0, 16) is
    // the last piece.
    CHECK(is(stats.inactive_split[kBothClasses], 2, 3, 4, 2));
    CHECK(is(stats.inactive_split_bytes[kBothClasses], 62 * kMi, 74 * kMi,
             (48 + 28 + 30 + 16) * kMi, (2 + 30 + 28) * kMi));
    CHECK(stats.num_ooms == 1);
    CHECK(stats.num_device_alloc == 3);
    CHECK(stats.max_split_size == -1);
}

TEST_CASE("memory that grows is reserved, but no segment, and has no pieces") {
    const auto known = stats_of([](TraceBuilder& builder) {
        EventDetails large;
        large.flags = trace::kLarge;
        builder.event(trace::EventKind::segment_map, 0, 8 * kMiB, large);
        builder.alloc(0, 3 * kMiB);
        builder.event(trace::EventKind::segment_map, 8 * kMiB, 2 * kMiB, large);
        builder.free(0);
        EventDetails second = large;
        second.flags |= trace::kSecond;
        builder.event(trace::EventKind::segment_map, 64 * kMiB, 4 * kMiB, second);
        builder.event(trace::EventKind::segment_unmap, 8 * kMiB, 2 * kMiB, large);
    });
    REQUIRE(known.has_value());
    CHECK(is(known->values.reserved_bytes[kLargeClass], 8 * kMi, 10 * kMi, 10 * kMi, 2 * kMi));
    CHECK(is(known->values.segment[kBothClasses], 0, 0, 0, 0));
    CHECK(is(known->values.inactive_split[kBothClasses], 0, 0, 0, 0));
    CHECK(known->values.num_device_alloc == 2);
    CHECK(known->values.num_device_free == 1);
}

TEST_CASE("memory_stats are as the process noted them where the ring has forgotten") {
    const auto noted = [](bool with_statistics) {
        return stats_of([with_statistics](TraceBuilder& builder) {
            builder.ring_chunks(1);
            builder.segment_alloc(0, 64 * kMiB);
            for (std::uint64_t i = 0; i < 1000; ++i)
                builder.alloc(i * 512, 512);
            if (!with_statistics) return;
            builder.statistic("0.allocation.all.peak", 7);
            builder.statistic("0.num_alloc_retries", 3);
            builder.statistic("0.max_split_size", ~std::uint64_t{0});
            builder.statistic("1.allocation.all.peak", 8);
        });
    };
    const auto known = noted(true);
    REQUIRE(known.has_value());
    CHECK_FALSE(known->from_events);
    CHECK(known->values.allocation[kBothClasses].peak == 7);
    CHECK(known->values.num_alloc_retries == 3);
    CHECK(known->values.max_split_size == -1);
    CHECK_FALSE(noted(false).has_value());
}

TEST_CASE("what no event tells comes from the process") {
    const auto known = stats_of([](TraceBuilder& builder) {
        builder.segment_alloc(0, 64 * kMiB);
        builder.statistic("0.num_sync_all_streams", 5);
        builder.statistic("0.segment.all.peak", 9);
    });
    REQUIRE(known.has_value());
    CHECK(known->values.num_sync_all_streams == 5);
    CHECK(known->values.segment[kBothClasses].peak == 1); // the events know better
}

TEST_CASE("the table of what the allocator holds") {
    const auto known = stats_of(cachealloc::tests::example_recording);
    REQUIRE(known.has_value());
    const auto has = [](const std::string& text, const char* line) {
        return text.find(line) != std::string::npos;
    };
    const std::string brief = memory_table(*known, false);
    CHECK(has(brief, "Reserved memory                160 MiB       160 MiB         160 MiB"
                     "             0 B\n"));
    CHECK_FALSE(has(brief, "small pool"));
    CHECK_FALSE(has(brief, "Oversize"));
    const std::string whole = memory_table(*known, true);
    CHECK(has(whole, "Non-releasable memory         62.0 MiB      74.0 MiB         122 MiB"
                     "        60.0 MiB\n"));
    CHECK(has(whole, "  from small pool                    1             1               1"
                     "               0\n"));
    CHECK(has(whole, "Oversize segments                    0             0               0"
                     "               0\n"));
    CHECK(has(whole, "by the events of the whole run"));
}
