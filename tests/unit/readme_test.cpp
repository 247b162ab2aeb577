// The README's table of options is the one that the parser works from.
#include "core/options.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

TEST_CASE("README: the options are those of the table") {
    std::ifstream file(CACHEALLOC_SOURCE_DIR "/README.md");
    REQUIRE(file);
    std::stringstream text;
    text << file.rdbuf();
    CHECK(text.str().find(cachealloc::describe_options()) != std::string::npos);
}
