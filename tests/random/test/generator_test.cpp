#include "tests/random/generator.h"

#include "tests/random/judge.h"

#include <catch2/catch.hpp>

#include <set>

using namespace random_programs;

TEST_CASE("every program is legal", "[generator]") {
    for (const Profile& profile : profiles()) {
        for (std::uint64_t seed = 1; seed <= 150; ++seed) {
            CAPTURE(profile.name, seed);
            CHECK(legal(generate(seed, profile)));
        }
    }
}

TEST_CASE("programs of all sorts use every verb", "[generator]") {
    std::set<Verb> used;
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        for (const Operation& o : generate(seed, everything()).operations)
            used.insert(o.verb);
    }
    for (std::size_t v = 0; v <= static_cast<std::size_t>(Verb::advance); ++v) {
        CAPTURE(name_of(static_cast<Verb>(v)));
        CHECK(used.count(static_cast<Verb>(v)) == 1);
    }
}
