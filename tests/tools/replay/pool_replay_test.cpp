#include "tools/replay/pool_replay.h"

#include "tests/tools/replay/sequences.h"

#include <catch2/catch.hpp>

namespace {

using namespace cachealloc;
using namespace cachealloc::tests;
using tools::AllocationSequence;
using tools::Fragmentation;
using tools::replay_pool;
using tools::ReplayResult;
using tools::ReplaySettings;

Options options(std::string_view text) {
    ParseReport report;
    const Options parsed = parse_options(text, report);
    REQUIRE(report.mistakes() == 0);
    return parsed;
}

} // namespace

TEST_CASE("a replay tells peaks, driver calls and what was free", "[replay]") {
    AllocationSequence sequence;
    const auto first = sequence.allocate(4 * kMiB - 100);
    sequence.allocate(1000);
    sequence.release(first);
    sequence.allocate(50 * kMiB);
    const ReplayResult result = replay_pool(sequence, {});
    CHECK(result.peak_requested == 50 * kMiB + 1000);
    CHECK(result.peak_rounded == 50 * kMiB + 1024);
    CHECK(result.peak_reserved == 56 * kMiB);
    CHECK(result.calls.allocate == 3);
    CHECK(result.allocations == 3);
    REQUIRE(result.fragmentation);
    CHECK(result.fragmentation->live == 50 * kMiB + 1000);
    CHECK(result.fragmentation->rounding == 24);
    CHECK(result.fragmentation->hard == 2 * kMiB - 1024);
    CHECK(result.fragmentation->soft == 4 * kMiB);
    CHECK(result.fragmentation->largest_free == 4 * kMiB);
}

TEST_CASE("what is not settled is not used again before its completion", "[replay]") {
    const bool completed = GENERATE(false, true);
    AllocationSequence sequence;
    const auto first = sequence.allocate(30 * kMiB);
    sequence.release(first, 0, false);
    if (completed) sequence.complete(first);
    sequence.allocate(30 * kMiB);
    // Two streams: a barrier would hold one of them up, so the pool grows within its slack.
    sequence.streams = 2;
    const ReplayResult result = replay_pool(sequence, {});
    CHECK(result.peak_reserved == (completed ? 30 : 60) * kMiB);
    REQUIRE(result.fragmentation);
    CHECK(result.fragmentation->stream == (completed ? 0 : 30 * kMiB));
}

TEST_CASE("a limit is kept, or the first request beyond it is named", "[replay]") {
    AllocationSequence sequence;
    const auto first = sequence.allocate(30 * kMiB);
    sequence.release(first);
    sequence.allocate(40 * kMiB);
    CHECK(replay_pool(sequence, {.limit = 40 * kMiB}).fits());
    sequence.allocate(8 * kMiB);
    const ReplayResult result = replay_pool(sequence, {.limit = 44 * kMiB});
    REQUIRE(result.failure);
    CHECK(result.failure->event == 3);
    CHECK(result.failure->bytes == 8 * kMiB);
    CHECK(result.failure->live == 40 * kMiB);
    CHECK(result.failure->reserved == 40 * kMiB);
    CHECK(result.peak_reserved == 40 * kMiB);
    const ReplayResult too_large = replay_pool(sequence, {.limit = 20 * kMiB});
    REQUIRE(too_large.failure);
    CHECK(too_large.failure->event == 0);
}

TEST_CASE("a recording's device is as large as it was", "[replay]") {
    AllocationSequence sequence;
    sequence.release(sequence.allocate(30 * kMiB));
    sequence.allocate(40 * kMiB);
    sequence.recorded.emplace().device_bytes = 44 * kMiB;
    CHECK(replay_pool(sequence, {}).peak_reserved == 40 * kMiB); // what is cached goes back first
    sequence.allocate(8 * kMiB);
    const ReplayResult result = replay_pool(sequence, {});
    REQUIRE(result.failure);
    CHECK(result.failure->limit == 44 * kMiB);
    CHECK(replay_pool(sequence, {.limit = 80 * kMiB}).fits());
}

TEST_CASE("steps and their steady part", "[replay]") {
    AllocationSequence sequence;
    for (int i = 0; i < 300; ++i)
        sequence.release(sequence.allocate(4096));
    for (int i = 0; i < 10; ++i) // in the steady part
        sequence.allocate(20 * kMiB);
    const ReplayResult result = replay_pool(sequence, {.steps = 31});
    CHECK(result.steady_steps == Approx((310 - 102) / 10.0).margin(0.11));
    CHECK(result.steady.allocate == 10);
    CHECK(result.calls.allocate == 11);
    CHECK(result.per_step(result.steady.changes()) == Approx(10 / result.steady_steps));
}

TEST_CASE("one replay leaves nothing to the next", "[replay]") {
    const unsigned seed = GENERATE(11U, 12U);
    INFO("seed " << seed);
    const AllocationSequence sequence = random_sequence(seed, 3000, 100);
    const char* const conf = GENERATE("", "max_split_size_mb:20", "cache_mb:0", "slack_mb:0",
                                      "expandable_segments:True");
    const ReplaySettings settings{.options = options(conf)};
    const ReplayResult first = replay_pool(sequence, settings);
    const ReplayResult second = replay_pool(sequence, settings);
    CHECK(first.peak_reserved == second.peak_reserved);
    CHECK(first.calls.single == second.calls.single);
    CHECK(first.peak_requested == sequence.peak_requested);
    CHECK(first.peak_reserved >= first.peak_rounded);
    const Fragmentation& at = *first.fragmentation;
    CHECK(at.reserved == first.peak_reserved);
    CHECK(at.reserved == at.live + at.rounding + at.hard + at.soft + at.stream);
    CHECK(at.outside == 0);
}
