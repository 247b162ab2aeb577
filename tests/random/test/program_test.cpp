#include "tests/random/program.h"

#include "tests/random/generator.h"

#include <catch2/catch.hpp>

using namespace random_programs;

TEST_CASE("a program's text reads back as the same program", "[program]") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const Program made = generate(seed, everything());
        std::string error;
        const auto read = parse_program(to_text(made), &error);
        REQUIRE(read);
        CHECK(read->operations == made.operations);
        CHECK(to_text(*read) == to_text(made));
    }
}

TEST_CASE("the same seed makes the same program", "[program]") {
    for (const Profile& profile : profiles())
        CHECK(to_text(generate(7, profile)) == to_text(generate(7, profile)));
}

TEST_CASE("what cannot be read is named", "[program]") {
    std::string error;
    for (const char* text : {"0 mallok b1 5", "0 malloc b1", "0 malloc b99 5", "0 malloc s1 5",
                             "9 malloc b1 5", "0 malloc b1 5 6", "0 malloc b1 -5", "conf a b"}) {
        CAPTURE(text);
        CHECK_FALSE(parse_program(text, &error));
        CHECK(error.find(text) != std::string::npos);
    }
    const auto read =
        parse_program("# nothing\n\n conf free:async \n1 fill b2 q 3 4 # late\n", &error);
    REQUIRE(read);
    CHECK(read->conf == "free:async");
    REQUIRE(read->operations.size() == 1);
    CHECK(read->operations[0].args[1] == kPerThreadEntry);
}
