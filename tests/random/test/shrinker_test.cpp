#include "tests/random/shrinker.h"

#include "tests/random/generator.h"
#include "tests/random/judge.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace random_programs;

namespace {

bool frees_under_a_kernel(const Program& program) {
    bool filled = false;
    for (const Operation& o : program.operations) {
        filled = filled || o.verb == Verb::fill;
        if (filled && o.verb == Verb::free) return true;
    }
    return false;
}

} // namespace

TEST_CASE("a program is cut down to what fails, and stays legal", "[shrinker]") {
    int shrunk = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const Program program = generate(seed, everything());
        if (!frees_under_a_kernel(program)) continue;
        ++shrunk;
        const Program small = shrink(program, frees_under_a_kernel);
        CAPTURE(seed, to_text(small));
        CHECK(legal(small));
        CHECK(frees_under_a_kernel(small));
        CHECK(small.operations.size() <= 5); // a block for each, and a stream
        CHECK(std::all_of(small.operations.begin(), small.operations.end(),
                          [](const Operation& o) { return o.thread == 0; }));
    }
    CHECK(shrunk > 5);
}

TEST_CASE("the budget bounds the tries", "[shrinker]") {
    int tries = 0;
    (void)shrink(
        generate(2, everything()),
        [&](const Program&) {
            ++tries;
            return false;
        },
        10);
    CHECK(tries <= 10);
}
