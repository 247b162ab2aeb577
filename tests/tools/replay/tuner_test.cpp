#include "tools/replay/tuner.h"

#include "tests/tools/replay/sequences.h"

#include <catch2/catch.hpp>

namespace {

using namespace cachealloc;
using namespace cachealloc::tests;
using tools::tune;
using tools::Tuned;
using tools::TuneOutcome;

} // namespace

TEST_CASE("tuning never makes it worse and keeps its bound where the defaults do", "[tuner]") {
    const unsigned seed = GENERATE(21U, 22U);
    INFO("seed " << seed);
    const tools::AllocationSequence sequence = random_sequence(seed, 1500, 60);
    double last = 0;
    const auto progress = [&last](double share) {
        CHECK(share >= last);
        last = share;
    };
    const TuneOutcome outcome = tune(sequence, {50, 30, "free:async", progress});
    CHECK(last == 1);
    CHECK(outcome.replays > 20);
    CHECK(outcome.standard.conf == "free:async");
    CHECK(outcome.expandable.conf == "free:async,expandable_segments:True");
    CHECK(outcome.standard.within);
    for (const Tuned* tuned : {&outcome.tuned, &outcome.expandable_tuned}) {
        CHECK(tuned->within);
        CHECK(tuned->conf.starts_with("free:async"));
    }
    CHECK(outcome.tuned.result.peak_reserved <= outcome.standard.result.peak_reserved);
    CHECK(outcome.expandable_tuned.result.peak_reserved <= outcome.expandable.result.peak_reserved);
    CHECK(outcome.best().result.peak_reserved <= outcome.tuned.result.peak_reserved);
    ParseReport report;
    static_cast<void>(parse_options(outcome.best().conf, report));
    CHECK(report.empty());
}

TEST_CASE("what is kept is what placement does not depend on", "[tuner]") {
    Options options;
    CHECK(tools::options_to_keep(format_options(options)).empty());
    CHECK(tools::options_to_keep("").empty());
    options.free_mode = FreeMode::sync;
    options.slack_mb = 7;
    options.roundup_power2_divisions.fill(4);
    options.expandable_segments = true;
    options.ring_mb = 128;
    CHECK(tools::options_to_keep(format_options(options)) == "free:sync,ring_mb:128");
    CHECK(tools::options_to_keep("roundup_power2_divisions:[256:1,>:4],stats:True") ==
          "stats:True");
}
