// Few points, and no peak lost.
#include "tools/exports/counter_track.h"

#include <catch2/catch.hpp>

#include <utility>
#include <vector>

using cachealloc::tools::CounterTrack;
using Points = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

namespace {

Points thinned(std::uint64_t span, const Points& changes) {
    Points points;
    CounterTrack track(span, [&points](std::uint64_t time, std::uint64_t value) {
        points.emplace_back(time, value);
    });
    for (const auto& [time, value] : changes) {
        track.add(time, value);
    }
    track.flush();
    track.flush();
    return points;
}

} // namespace

TEST_CASE("A span keeps its first, lowest, highest and last values in order", "[exports]") {
    CHECK(thinned(10, {}).empty());
    CHECK(thinned(10, {{3, 5}}) == Points{{3, 5}});
    CHECK(thinned(10, {{1, 5}, {2, 9}, {3, 7}, {4, 1}, {5, 2}, {6, 4}}) ==
          Points{{1, 5}, {2, 9}, {4, 1}, {6, 4}});
    CHECK(thinned(10, {{1, 5}, {2, 6}, {3, 7}}) == Points{{1, 5}, {3, 7}});
    CHECK(thinned(10, {{9, 5}, {10, 6}, {19, 7}, {35, 8}}) ==
          Points{{9, 5}, {10, 6}, {19, 7}, {35, 8}});
    // Several changes at one moment are several.
    CHECK(thinned(1, {{4, 1}, {4, 2}, {4, 3}}) == Points{{4, 1}, {4, 3}});
}
