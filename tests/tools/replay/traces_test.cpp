// The policies on recorded programs, against figures found independently.
#include "tools/replay/offline_greedy.h"
#include "tools/replay/rule_policies.h"
#include "tools/replay/sequence_file.h"

#include <catch2/catch.hpp>

#include <filesystem>

namespace {

using namespace cachealloc::tools;

struct Figures {
    const char* file;
    double pytorch, expandable, one_range, offline;
    double ours; ///< at most, with growable memory and no other option
};
constexpr Figures kFigures[] = {
    {"train_fixed.csv.gz", 1.240, 1.096, 1.077, 1.000, 1.03},
    {"train_ragged.csv.gz", 1.375, 1.109, 1.100, 1.007, 1.03},
    {"four_streams.csv.gz", 1.533, 1.288, 1.224, 1.053, 1.08},
    {"intervals/resnet50.csv", 1.114, 1.021, 1.003, 1.006, 1.01},
    {"intervals/G_1.csv", 1.023, 1.005, 1.003, 1.003, 1.01},
    {"intervals/pangu_2.6B.csv.gz", 1.466, 1.192, 1.120, 1.033, 1.06},
};

} // namespace

TEST_CASE("policies and the pool come to the figures known of recorded traces", "[traces]") {
    const std::filesystem::path folder = TRACES_FOLDER;
    if (!std::filesystem::exists(folder)) {
        WARN("skipped: " << folder << " is absent");
        return;
    }
    for (const Figures& known : kFigures) {
        INFO(known.file);
        const AllocationSequence sequence = read_sequence(folder / known.file);
        const auto ratio = [&](Rules rules) { return replay_rules(sequence, rules).ratio(); };
        CHECK(ratio(Rules::pytorch) == Approx(known.pytorch).margin(0.0006));
        CHECK(ratio(Rules::pytorch_expandable) == Approx(known.expandable).margin(0.0006));
        CHECK(ratio(Rules::one_range) == Approx(known.one_range).margin(0.0006));
        CHECK(replay_greedy(sequence).ratio() <= known.offline + 0.0006);
        CHECK(replay_pool(sequence, {}).ratio() <= known.pytorch);
        ReplaySettings growable;
        growable.options.expandable_segments = true;
        const ReplayResult ours = replay_pool(sequence, growable);
        CHECK(ours.ratio() <= known.ours);
        CHECK(ours.per_step(ours.steady.remaps) <= 2);
        CHECK(ours.calls.remaps != 0);
        REQUIRE(ours.fragmentation);
        CHECK(ours.fragmentation->outside == 0);
    }
}
