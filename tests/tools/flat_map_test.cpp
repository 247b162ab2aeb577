#include "tools/analysis/flat_map.h"

#include <catch2/catch.hpp>

#include <map>
#include <random>

using cachealloc::tools::FlatMap;
using cachealloc::tools::Place;

TEST_CASE("a flat map is a map") {
    const auto seed = static_cast<std::uint32_t>(Catch::rngSeed());
    CAPTURE(seed);
    std::mt19937 random(seed);
    for (const std::uint64_t range : {8U, 100U, 3000U}) {
        FlatMap<std::uint64_t> flat;
        std::map<std::pair<std::uint64_t, std::uint8_t>, std::uint64_t> model;
        for (int i = 0; i < 20'000; ++i) {
            const Place place{random() % range * 512, static_cast<std::uint8_t>(random() % 2)};
            const std::pair key{place.address, place.space};
            if (random() % 2 == 0) {
                REQUIRE(flat.insert(place, random() % 100) == !model.contains(key));
                model[key] = *flat.find(place);
            } else {
                REQUIRE(flat.erase(place) == (model.erase(key) == 1));
            }
            REQUIRE(flat.size() == model.size());
        }
        std::size_t seen = 0;
        flat.for_each([&](const Place& place, std::uint64_t value) {
            ++seen;
            REQUIRE(model.at({place.address, place.space}) == value);
        });
        CHECK(seen == model.size());
        for (const auto& [key, value] : model)
            REQUIRE(*flat.find({key.first, key.second}) == value);
    }
}
