#include "pool_fixture.h"
#include "recorded_program.h"

using namespace cachealloc;

namespace {

struct Outcome {
    double ratio = 0;           ///< peak of reserved bytes to peak of live bytes as asked for
    double remaps_per_step = 0; ///< after the first third
    PoolStatistics statistics;
};

Options expandable() {
    Options options = pool_options();
    options.expandable_segments = true;
    return options;
}

Outcome play(const RecordedProgram& program, double steps) {
    PoolFixture f(OrderLevel::ordered, expandable(), 64 * kGiB);
    std::vector<Block*> blocks(program.ids);
    std::vector<std::uint64_t> bytes(program.ids);
    std::uint64_t live = 0;
    std::uint64_t peak_live = 0;
    std::uint64_t peak_reserved = 0;
    std::uint64_t remaps_before = 0;
    std::uint64_t steady_allocations = 0;
    const std::size_t steady = program.events.size() / 3;
    for (std::size_t i = 0; i < program.events.size(); ++i) {
        const RecordedProgram::Event& event = program.events[i];
        if (i == steady) remaps_before = f.pool->statistics().remaps;
        if (!event.allocates) {
            live -= bytes[event.id];
            REQUIRE(f.free(blocks[event.id]).status == PoolStatus::done);
            continue;
        }
        if (i >= steady) ++steady_allocations;
        bytes[event.id] = event.bytes;
        live += event.bytes;
        peak_live = std::max(peak_live, live);
        blocks[event.id] = f.alloc(std::max<std::uint64_t>(event.bytes, 1));
        REQUIRE(blocks[event.id] != nullptr);
        peak_reserved = std::max(peak_reserved, f.device.held());
    }
    Outcome outcome;
    outcome.statistics = f.pool->statistics();
    outcome.ratio = static_cast<double>(peak_reserved) / static_cast<double>(peak_live);
    const double allocations_per_step = static_cast<double>(program.allocations) / steps;
    outcome.remaps_per_step = static_cast<double>(outcome.statistics.remaps - remaps_before) /
                              (static_cast<double>(steady_allocations) / allocations_per_step);
    CHECK(f.first_complaint() == "");
    return outcome;
}

} // namespace

TEST_CASE("DevicePool: growable memory holds little more than recorded programs need") {
    struct Aim {
        const char* file;
        double ratio;
        double steps; ///< in the recording; 0: it has none
    };
    const auto aim = GENERATE(values<Aim>({{"train_fixed.csv.gz", 1.03, 30},
                                           {"train_ragged.csv.gz", 1.03, 30},
                                           {"four_streams.csv.gz", 1.08, 0},
                                           {"intervals/resnet50.csv", 1.01, 0},
                                           {"intervals/G_1.csv", 1.01, 0},
                                           {"intervals/pangu_2.6B.csv.gz", 1.06, 0}}));
    const std::string path = CACHEALLOC_SOURCE_DIR "/../shared/traces/" + std::string(aim.file);
    const RecordedProgram program = RecordedProgram::read(path);
    if (program.events.empty()) {
        WARN("skipped, there is no " << path);
        return;
    }
    const Outcome outcome = play(program, aim.steps > 0 ? aim.steps : 1);
    INFO(aim.file << ": ratio " << outcome.ratio << ", remaps a step " << outcome.remaps_per_step
                  << ", stitches made " << outcome.statistics.stitches_made << ", used "
                  << outcome.statistics.stitches_used << ", ended "
                  << outcome.statistics.stitches_ended);
    CHECK(outcome.ratio <= aim.ratio);
    if (aim.steps > 0) CHECK(outcome.remaps_per_step <= 2);
}
