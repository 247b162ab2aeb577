#include "tests/random/model.h"

#include "tests/random/judge.h"

#include <catch2/catch.hpp>

using namespace random_programs;

namespace {

bool is_legal(const std::string& text) {
    std::string error;
    const auto program = parse_program(text, &error);
    INFO(error);
    REQUIRE(program);
    return legal(*program);
}

const std::string kTwoStreams = "0 stream s1 1\n0 stream s2 1\n0 malloc b0 512\n0 fill b0 s1 1 0\n";

} // namespace

TEST_CASE("a block goes to another stream behind a wait only", "[model]") {
    CHECK_FALSE(is_legal(kTwoStreams + "0 fill b0 s2 1 0\n"));
    CHECK(is_legal(kTwoStreams + "0 fill b0 s1 1 0\n"));
    CHECK(is_legal(kTwoStreams + "0 sync s1\n0 fill b0 s2 1 0\n"));
    CHECK(is_legal(kTwoStreams + "0 event e0\n0 record e0 s1\n0 wait s2 e0\n0 fill b0 s2 1 0\n"));
    // An event recorded before the work says nothing of it.
    CHECK_FALSE(
        is_legal("0 stream s1 1\n0 stream s2 1\n0 malloc b0 512\n0 event e0\n0 record e0 s1\n"
                 "0 fill b0 s1 1 0\n0 wait s2 e0\n0 fill b0 s2 1 0\n"));
}

TEST_CASE("two readers need no order, a writer after them does", "[model]") {
    const std::string readers =
        "0 stream s1 1\n0 stream s2 1\n0 malloc b0 512\n0 malloc b1 512\n"
        "0 malloc b2 512\n0 copy b1 b0 s1 0\n0 copy b2 b0 s2 0\n0 sync s1\n";
    CHECK(is_legal(readers));
    CHECK_FALSE(is_legal(readers + "0 memset b0 s1 1\n"));
    CHECK(is_legal(readers + "0 sync s2\n0 memset b0 s1 1\n"));
}

TEST_CASE("the legacy stream and blocking streams wait for one another", "[model]") {
    CHECK(is_legal("0 stream s1 0\n0 malloc b0 512\n0 fill b0 s1 1 0\n0 check b0\n"));
    CHECK_FALSE(is_legal("0 stream s1 1\n0 malloc b0 512\n0 fill b0 s1 1 0\n0 check b0\n"));
    CHECK(is_legal("0 malloc b0 512\n0 fill b0 s0 1 0\n1 fill b0 p 1 0\n"));
    CHECK_FALSE(is_legal("0 malloc b0 512\n0 fill b0 p 1 0\n1 fill b0 p 1 0\n"));
}

TEST_CASE("cudaFree needs no order, and gives none unless the shim is told to wait", "[model]") {
    CHECK(is_legal(kTwoStreams + "0 free b0\n0 malloc b0 512\n0 fill b0 s2 1 0\n"));
    const std::string leaning = kTwoStreams + "0 malloc b1 512\n0 free b1\n0 fill b0 s2 1 0\n";
    CHECK_FALSE(is_legal("conf free:async\n" + leaning));
    CHECK(is_legal("conf free:auto\n" + leaning));
    CHECK_FALSE(is_legal("conf free:auto,order:finished\n" + leaning));
    CHECK_FALSE(is_legal("conf free:auto\n0 device d1\n0 device d0\n" + leaning));
    CHECK(is_legal("conf free:sync\n" + leaning));
    const std::string result = "0 malloc b0 512\n0 malloc b1 512\n0 pinned h0\n0 d2h h0 b0 s0\n"
                               "0 free b1\n0 check_host h0\n";
    CHECK_FALSE(is_legal("conf free:async\n" + result));
    CHECK(is_legal("conf free:auto\n" + result));
}

TEST_CASE("memory in a stream's order is used and freed in that order", "[model]") {
    const std::string made = "0 stream s1 1\n0 stream s2 1\n0 malloc_async b0 512 s1\n";
    CHECK(is_legal(made + "0 fill b0 s1 1 0\n0 free_async b0 s1\n"));
    CHECK_FALSE(is_legal(made + "0 fill b0 s2 1 0\n"));
    CHECK_FALSE(is_legal(made + "0 fill b0 s1 1 0\n0 free_async b0 s2\n"));
    CHECK_FALSE(is_legal(made + "0 fill b0 s1 1 0\n0 free b0\n"));
    CHECK(is_legal(made + "0 fill b0 s1 1 0\n0 sync s1\n0 free b0\n"));
}

TEST_CASE("an early kernel comes behind what the one in front came behind", "[model]") {
    const std::string front = "0 malloc b0 512\n0 malloc b1 512\n0 fill b0 s0 1 0\n";
    CHECK(is_legal(front + "0 overlap b1 s0 1 0\n0 fill b0 s0 1 0\n0 fill b1 s0 1 0\n"));
    CHECK_FALSE(is_legal(front + "0 overlap b0 s0 1 0\n"));
    CHECK(is_legal(front + "0 memset b1 s0 1\n0 overlap b0 s0 1 0\n"));
}

TEST_CASE("nobody waits for a gate that is shut", "[model]") {
    const std::string gate = "0 stream s1 1\n0 stream s2 1\n0 malloc b0 512\n0 await s1 f0\n";
    CHECK_FALSE(is_legal(gate));
    CHECK(is_legal(gate + "0 signal s2 f0\n0 sync s1\n"));
    CHECK_FALSE(is_legal(gate + "0 sync s1\n0 signal s2 f0\n"));
    CHECK_FALSE(is_legal(gate + "0 free b0\n0 signal s2 f0\n"));
    CHECK_FALSE(is_legal(gate + "0 signal s1 f0\n"));
    CHECK(is_legal(gate + "0 free_async b0 s1\n0 malloc b1 512\n0 signal s2 f0\n"));
}

TEST_CASE("a graph's work is checked where it is launched", "[model]") {
    const std::string graph =
        kTwoStreams + "0 capture s2 2\n0 fill b0 s2 1 0\n0 end_capture s2 g0\n";
    CHECK_FALSE(is_legal(graph + "0 launch g0 s2\n"));
    CHECK(is_legal(graph + "0 launch g0 s1\n0 launch g0 s1\n"));
    CHECK_FALSE(is_legal(graph + "0 free b0\n0 launch g0 s1\n"));
    CHECK_FALSE(is_legal(kTwoStreams + "0 capture s2 2\n"));
}

TEST_CASE("a capture refuses allocations and is ended by them", "[model]") {
    Model model;
    const auto code = [&](Operation o) {
        REQUIRE(model.check(o).legal);
        return model.apply(o).code;
    };
    CHECK(code({0, Verb::stream, {1, 1}}) == 0);
    CHECK(code({0, Verb::capture, {1, 0}}) == 0);
    CHECK(code({1, Verb::malloc, {0, 512}}) == 900);
    CHECK(code({0, Verb::end_capture, {1, 0}}) == 901);
    CHECK(code({0, Verb::capture, {1, 1}}) == 0);
    CHECK(code({1, Verb::malloc, {0, 512}}) == 0);
    CHECK(code({0, Verb::end_capture, {1, 0}}) == 0);
}
