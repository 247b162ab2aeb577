// Stacks of a recording, named: modules by address and time, own frames, cut stacks.
#include "tests/tools/symbols/loaded_fixture.h"
#include "tests/tools/trace_builder.h"
#include "tools/symbols/stack_symbols.h"

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

using namespace cachealloc;
using namespace cachealloc::tools;

namespace {

constexpr std::uint64_t kBias = 0x7f0000000000;

/// Makes a trace of what was built; the file has no name when this returns.
std::unique_ptr<Trace> open(tests::TraceBuilder& builder) {
    char name[] = "/tmp/stack_symbols_XXXXXX";
    const int descriptor = mkstemp(name);
    REQUIRE(descriptor >= 0);
    close(descriptor);
    REQUIRE(builder.write(name));
    auto trace = std::make_unique<Trace>(name);
    unlink(name);
    return trace;
}

std::string_view bytes(const std::vector<std::uint8_t>& id) {
    return {reinterpret_cast<const char*>(id.data()), id.size()};
}

std::vector<std::string> names(StackSymbols& symbols, std::uint32_t stack) {
    std::vector<std::string> names;
    for (const auto id : symbols.frames(stack)) {
        names.emplace_back(symbols.frame(id).function);
    }
    return names;
}

using Names = std::vector<std::string>;

} // namespace

TEST_CASE("Stacks are named by the modules that were loaded then", "[symbols]") {
    const LoadedFixture fixture("full");
    const FixturePlace exported = fixture.call("fixture_exported");
    const std::uint64_t place = kBias + fixture.offset(exported);
    const std::uint64_t local = kBias + fixture.offset(fixture.call("fixture_local"));
    tests::TraceBuilder builder;
    builder.module("/opt/own.so", 0x1000000, 0x1000000, 0x1100000, "own", trace::kOwnModule);
    builder.module(fixture.path(), kBias, kBias, kBias + 0x100000, bytes(fixture.build_id()));
    const auto whole = builder.stack({0x1000010, local, place, 0x1234});
    const auto again = builder.stack({place});
    const auto cut = builder.stack({local}, true);
    builder.unload(kBias);
    const auto late = builder.stack({local});
    builder.module("/opt/other.so", kBias, kBias, kBias + 0x100000, "other");
    const auto other = builder.stack({local});
    const auto trace = open(builder);

    const Names inlined = {"(anonymous namespace)::Places::inner", "fixture::middle(int)",
                           "fixture_exported"};
    const std::string local_name = "(anonymous namespace)::local_function()";
    StackSymbols symbols(*trace);
    CHECK(names(symbols, whole) == Names{local_name, inlined[0], inlined[1], inlined[2], "0x1234"});
    CHECK(names(symbols, again) == inlined);
    CHECK(names(symbols, cut) == Names{local_name, "[truncated]"});
    CHECK(names(symbols, late) == Names{local_name + " [module changed]"});
    CHECK_THAT(names(symbols, other).at(0), Catch::StartsWith("other.so+0x"));
    CHECK(names(symbols, 0).empty());
    CHECK(names(symbols, 12345678).empty());

    // The frame of the recorder is left out, that of no module has its address for a place.
    const auto places = symbols.places(whole);
    REQUIRE(places.size() == 5);
    CHECK(places[1].offset == place - kBias);
    CHECK(places[3].offset == place - kBias);
    REQUIRE(places[1].module != nullptr);
    CHECK(places[1].module->path == fixture.path());
    CHECK(places[4].module == nullptr);
    CHECK(places[4].offset == 0x1234);

    // Equal frames are one.
    CHECK(symbols.frames(whole)[2] == symbols.frames(again)[1]);
    const SourceFrame& frame = symbols.frame(symbols.frames(again)[1]);
    CHECK(frame.line == static_cast<std::uint32_t>(exported.lines[1]));
    CHECK(frame.inlined);
    CHECK(symbols.frames(again).data() == symbols.frames(again).data());

    StackSymbols bare(*trace, {}, false);
    char expected[64];
    std::snprintf(expected, sizeof expected, "libfixture.so+0x%llx",
                  static_cast<unsigned long long>(place - kBias));
    CHECK(names(bare, again) == Names{expected});
    CHECK(bare.sources().empty());
}
