#include "tests/tools/replay/sequences.h"
#include "tools/replay/offline_greedy.h"
#include "tools/replay/rule_policies.h"

#include <catch2/catch.hpp>

namespace {

using namespace cachealloc;
using namespace cachealloc::tests;
using tools::AllocationSequence;
using tools::replay_greedy;
using tools::replay_rules;
using tools::ReplayResult;
using tools::Rules;

} // namespace

TEST_CASE("PyTorch's segments are 2, 20 or a multiple of 2 MiB", "[policies]") {
    const auto reserved = [](std::uint64_t bytes, Rules rules) {
        AllocationSequence sequence;
        sequence.allocate(bytes);
        return replay_rules(sequence, rules).peak_reserved;
    };
    CHECK(reserved(1, Rules::pytorch) == 2 * kMiB);
    CHECK(reserved(kMiB, Rules::pytorch) == 2 * kMiB);
    CHECK(reserved(kMiB + 1, Rules::pytorch) == 20 * kMiB);
    CHECK(reserved(10 * kMiB - 512, Rules::pytorch) == 20 * kMiB);
    CHECK(reserved(10 * kMiB, Rules::pytorch) == 10 * kMiB);
    CHECK(reserved(31 * kMiB - 1, Rules::pytorch) == 32 * kMiB);
    CHECK(reserved(1, Rules::pytorch_expandable) == 2 * kMiB);
    CHECK(reserved(31 * kMiB, Rules::pytorch_expandable) == 40 * kMiB);
    CHECK(reserved(1, Rules::one_range) == 512);
}

TEST_CASE("a rest of a large segment serves from above 1 MiB on", "[policies]") {
    AllocationSequence sequence;
    sequence.allocate(19 * kMiB); // 20 MiB: 1 MiB stays with it
    CHECK(replay_rules(sequence, Rules::pytorch).splits == 0);
    AllocationSequence other;
    other.allocate(12 * kMiB - 512);
    other.allocate(9 * kMiB); // 20 MiB: 11 are left
    other.allocate(11 * kMiB);
    const ReplayResult result = replay_rules(other, Rules::pytorch);
    CHECK(result.peak_reserved == 32 * kMiB);
    CHECK(result.calls.allocate == 2);
    CHECK(result.splits == 1);
}

TEST_CASE("a range grows by what its free end lacks", "[policies]") {
    AllocationSequence sequence;
    const auto first = sequence.allocate(30 * kMiB); // 40 MiB, 10 of them free
    sequence.allocate(20 * kMiB);                    // 10 more: one page
    sequence.release(first);
    sequence.allocate(25 * kMiB); // into the hole
    const ReplayResult result = replay_rules(sequence, Rules::pytorch_expandable);
    CHECK(result.peak_reserved == 60 * kMiB);
    CHECK(result.calls.grow == 2);
    CHECK(result.calls.pieces == 3);
}

TEST_CASE("at its limit PyTorch gives wholly free segments back, then fails", "[policies]") {
    AllocationSequence sequence;
    const auto first = sequence.allocate(30 * kMiB);
    sequence.release(first);
    const auto second = sequence.allocate(40 * kMiB);
    CHECK(replay_rules(sequence, Rules::pytorch, 30, 40 * kMiB).fits());
    sequence.release(second);
    sequence.allocate(4 * kMiB); // pins the 40 MiB
    sequence.allocate(38 * kMiB);
    const ReplayResult result = replay_rules(sequence, Rules::pytorch, 30, 60 * kMiB);
    REQUIRE(result.failure);
    CHECK(result.failure->event == 5);
    CHECK(result.failure->bytes == 38 * kMiB);
    CHECK(result.failure->live == 4 * kMiB);
    CHECK(result.failure->reserved == 40 * kMiB);
    CHECK(result.failure->largest_free == 36 * kMiB);
}

TEST_CASE("an offline placement holds every block for all its life", "[policies]") {
    // Two blocks that leave a hole which only one that knows of the third would place around.
    AllocationSequence sequence;
    const auto a = sequence.allocate(2 * kMiB);
    const auto b = sequence.allocate(kMiB);
    sequence.release(a);
    const auto c = sequence.allocate(3 * kMiB);
    sequence.release(b);
    sequence.release(c);
    CHECK(replay_greedy(sequence).peak_reserved == 4 * kMiB);
    CHECK(replay_rules(sequence, Rules::one_range).peak_reserved == 6 * kMiB);
    CHECK(replay_greedy(sequence, 3 * kMiB).failure);
}

TEST_CASE("no policy reserves less than what is live at once", "[policies]") {
    const unsigned seed = GENERATE(1U, 2U, 3U);
    INFO("seed " << seed);
    const AllocationSequence sequence = random_sequence(seed, 1500, 60);
    for (const Rules rules : {Rules::pytorch, Rules::pytorch_expandable, Rules::one_range}) {
        const ReplayResult result = replay_rules(sequence, rules);
        CHECK(result.peak_reserved >= result.peak_rounded);
        CHECK(result.peak_requested == sequence.peak_requested);
        CHECK(result.events == sequence.events.size());
    }
    const ReplayResult bound = replay_greedy(sequence);
    CHECK(bound.peak_reserved >= bound.peak_rounded);
    CHECK(bound.peak_reserved <= replay_rules(sequence, Rules::one_range).peak_reserved);
}
