// Segments that neither move nor grow, by the pool's rules and by PyTorch's, on recorded programs.
#include "tools/replay/pool_replay.h"
#include "tools/replay/rule_policies.h"
#include "tools/replay/sequence_file.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <iostream>
#include <string>

using namespace cachealloc;
using namespace cachealloc::tools;

namespace {

const std::filesystem::path kFolder = TRACES_FOLDER;

ReplayResult replay(const AllocationSequence& sequence) {
    ReplaySettings settings;
    settings.fragmentation = false;
    return replay_pool(sequence, settings);
}

} // namespace

TEST_CASE("classic segments hold no more than by PyTorch's rules", "[traces]") {
    struct Row {
        const char* file;
        double at_most; ///< peak held by peak live
    };
    for (const Row& row :
         {Row{"train_fixed.csv.gz", 1.12}, Row{"train_ragged.csv.gz", 1.21},
          Row{"four_streams.csv.gz", 1.16}, Row{"intervals/resnet50.csv", 1.114},
          Row{"intervals/G_1.csv", 1.024}, Row{"intervals/pangu_2.6B.csv.gz", 1.16}}) {
        const std::filesystem::path path = kFolder / row.file;
        if (!std::filesystem::exists(path)) {
            std::cout << "skipped: no " << path << '\n';
            continue;
        }
        INFO(row.file);
        const AllocationSequence sequence = read_sequence(path);
        const ReplayResult ours = replay(sequence);
        const ReplayResult rules = replay_rules(sequence, Rules::pytorch);
        CHECK(ours.peak_reserved <= rules.peak_reserved);
        CHECK(ours.ratio() <= row.at_most);
    }
}

// Programs of a megabyte: one segment more is all the difference that there can be.
TEST_CASE("classic segments of tiny programs are at most one more than by PyTorch's rules",
          "[traces]") {
    for (char name = 'A'; name <= 'K'; ++name) {
        const std::filesystem::path path =
            kFolder / ("intervals/minimalloc_" + std::string(1, name) + ".csv");
        if (!std::filesystem::exists(path)) {
            std::cout << "skipped: no " << path << '\n';
            continue;
        }
        INFO(name);
        const AllocationSequence sequence = read_sequence(path);
        CHECK(replay(sequence).peak_reserved <=
              replay_rules(sequence, Rules::pytorch).peak_reserved + kGranule);
    }
}

TEST_CASE("classic segments: a program of one shape makes no driver calls once it is warm",
          "[traces]") {
    const std::filesystem::path path = kFolder / "train_fixed.csv.gz";
    if (!std::filesystem::exists(path)) {
        std::cout << "skipped: no " << path << '\n';
        return;
    }
    CHECK(replay(read_sequence(path)).steady.changes() == 0);
}
