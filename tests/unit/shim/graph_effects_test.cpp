#include "shim/graph_effects.h"

#include <catch2/catch.hpp>
#include <memory>

using namespace cachealloc::shim;

namespace {

CUgraphExec graph(std::uintptr_t n) {
    return reinterpret_cast<CUgraphExec>(n << 4);
}

} // namespace

TEST_CASE("GraphEffects: nothing known means everything") {
    const auto effects = std::make_unique<GraphEffects>();
    CHECK(effects->of(graph(1)).host_visible);
    CHECK(effects->of(graph(1)).records_events);
    effects->learnt(graph(1), {false, true});
    CHECK_FALSE(effects->of(graph(1)).host_visible);
    CHECK(effects->of(graph(1)).records_events);
    effects->learnt(graph(1), {true, false});
    CHECK(effects->of(graph(1)).host_visible);
    CHECK_FALSE(effects->of(graph(1)).records_events);
    effects->forget(graph(1));
    CHECK(effects->of(graph(1)).records_events);
}

TEST_CASE("GraphEffects: what finds no room is not known") {
    const auto effects = std::make_unique<GraphEffects>();
    std::size_t known = 0;
    for (std::uintptr_t i = 1; i <= 4 * GraphEffects::kMost; ++i)
        effects->learnt(graph(i), {false, false});
    for (std::uintptr_t i = 1; i <= 4 * GraphEffects::kMost; ++i)
        known += effects->of(graph(i)).host_visible ? 0 : 1;
    CHECK(known > 0);
    CHECK(known <= GraphEffects::kMost);
    for (std::uintptr_t i = 1; i <= 4 * GraphEffects::kMost; ++i)
        effects->forget(graph(i));
    effects->learnt(graph(1), {false, false});
    CHECK_FALSE(effects->of(graph(1)).host_visible);
}
