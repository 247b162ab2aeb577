// Exact functions, lines and inlined calls, from every kind of file that a module can lie in.
#include "tests/tools/symbols/loaded_fixture.h"
#include "tools/symbols/symbolizer.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace cachealloc::tools;
namespace fs = std::filesystem;

namespace {

struct Expected {
    std::string function;
    int line;
    bool inlined;
};

/// The frames of a function of the fixture as they are where everything is known.
std::vector<Expected> expected(const std::string& function, const FixturePlace& place) {
    if (function == "fixture_exported") {
        return {{"(anonymous namespace)::Places::inner", place.lines[0], true},
                {"fixture::middle(int)", place.lines[1], true},
                {"fixture_exported", place.lines[2], false}};
    }
    if (function == "fixture_local") {
        return {{"(anonymous namespace)::local_function()", place.lines[0], false}};
    }
    return {{"fixture::Box::method(int, char const*)", place.lines[0], false}};
}

void check_everything_known(Symbolizer& symbolizer, const LoadedFixture& fixture,
                            const std::string& path) {
    const auto module = symbolizer.module(path, fixture.build_id());
    for (const char* function : {"fixture_exported", "fixture_local", "fixture_method"}) {
        INFO(function);
        const FixturePlace place = fixture.call(function);
        const auto wanted = expected(function, place);
        const auto frames = symbolizer.frames(module, fixture.offset(place));
        REQUIRE(frames.size() == wanted.size());
        for (std::size_t index = 0; index < wanted.size(); ++index) {
            INFO("frame " << index);
            CHECK(std::string(frames[index].function) == wanted[index].function);
            CHECK(std::string(frames[index].file) == SYMBOL_FIXTURE_SOURCE);
            CHECK(frames[index].line == static_cast<std::uint32_t>(wanted[index].line));
            CHECK(frames[index].inlined == wanted[index].inlined);
        }
        // From memory, the very same.
        CHECK(symbolizer.frames(module, fixture.offset(place)).data() == frames.data());
    }
    const SymbolSource source = symbolizer.sources()[module];
    CHECK(source.state == SymbolState::lines);
    CHECK(source.verified == !fixture.build_id().empty());
    CHECK(source.places == 3);
    CHECK(source.path == path);
}

/// A folder of the test's own.
class Folder {
  public:
    Folder() : path_(fs::temp_directory_path() / ("symbols_" + std::to_string(getpid()))) {
        fs::create_directories(path_);
    }
    ~Folder() { fs::remove_all(path_); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    [[nodiscard]] fs::path operator/(const std::string& name) const { return path_ / name; }
    [[nodiscard]] std::string string() const { return path_.string(); }

  private:
    fs::path path_;
};

fs::path by_id(const std::vector<std::uint8_t>& build_id, const std::string& suffix) {
    const std::string id = hexadecimal(build_id);
    return fs::path(".build-id") / id.substr(0, 2) / (id.substr(2) + suffix);
}

void copy_to(const fs::path& from, const fs::path& to) {
    fs::create_directories(to.parent_path());
    fs::copy_file(from, to);
}

std::string only_function(Symbolizer& symbolizer, Symbolizer::ModuleId module,
                          std::uint64_t offset) {
    const auto frames = symbolizer.frames(module, offset);
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].file.empty());
    CHECK(frames[0].line == 0);
    CHECK_FALSE(frames[0].inlined);
    return std::string(frames[0].function);
}

std::string module_and(std::uint64_t offset) {
    std::ostringstream text;
    text << "libfixture.so+0x" << std::hex << offset;
    return text.str();
}

} // namespace

TEST_CASE("A file with debug information gives functions, lines and inlined calls", "[symbols]") {
    for (const char* variant : {"full", "dwarf4", "unindexed", "split"}) {
        INFO(variant);
        const LoadedFixture fixture(variant);
        Symbolizer symbolizer;
        check_everything_known(symbolizer, fixture, fixture.path());
        CHECK(symbolizer.sources()[0].note.empty());
    }
}

TEST_CASE("Debug information is found beside a stripped file by its link", "[symbols]") {
    const LoadedFixture fixture("linked");
    Symbolizer symbolizer;
    check_everything_known(symbolizer, fixture, fixture.path());

    const LoadedFixture without_id("linked_without_id");
    REQUIRE(without_id.build_id().empty());
    check_everything_known(symbolizer, without_id, without_id.path());
    CHECK_THAT(symbolizer.sources()[1].note, Catch::Contains("no build-id was recorded"));
}

TEST_CASE("Debug information is found by build-id in the folders given", "[symbols]") {
    const LoadedFixture fixture("stripped");
    const Folder folder;
    copy_to(std::string(SYMBOL_FIXTURES) + "/linked/libfixture.so.debug",
            folder / by_id(fixture.build_id(), ".debug").string());
    Symbolizer symbolizer({{}, {folder.string()}});
    check_everything_known(symbolizer, fixture, fixture.path());

    SECTION("also where the file itself is gone") {
        Symbolizer without_file({{}, {folder.string()}});
        check_everything_known(without_file, fixture, "/no/such/libfixture.so");
    }
}

TEST_CASE("The file itself is found by build-id, by name, by path and in a sysroot", "[symbols]") {
    const LoadedFixture fixture("full");
    const Folder folder;
    const std::string gone = "/opt/gone/libfixture.so";
    SymbolSearch search{{}, {folder.string()}};
    SECTION("build-id") {
        copy_to(fixture.path(), folder / by_id(fixture.build_id(), "").string());
    }
    SECTION("name") {
        copy_to(fixture.path(), folder / "libfixture.so");
    }
    SECTION("path") {
        copy_to(fixture.path(), folder / ("." + gone));
    }
    SECTION("sysroot") {
        copy_to(fixture.path(), folder / ("." + gone));
        search = {folder.string(), {}};
    }
    Symbolizer symbolizer(search);
    check_everything_known(symbolizer, fixture, gone);
}

TEST_CASE("Without debug information there are functions but no lines", "[symbols]") {
    const LoadedFixture fixture("symbols");
    Symbolizer symbolizer;
    const auto module = symbolizer.module(fixture.path(), fixture.build_id());
    const auto name = [&](const char* function) {
        return only_function(symbolizer, module, fixture.offset(fixture.call(function)));
    };
    CHECK(name("fixture_exported") == "fixture_exported");
    CHECK(name("fixture_local") == "(anonymous namespace)::local_function()");
    CHECK(name("fixture_method") == "fixture::Box::method(int, char const*)");
    CHECK(symbolizer.sources()[module].state == SymbolState::functions);
    CHECK_THAT(symbolizer.sources()[module].note, Catch::Contains("no debug information"));
}

TEST_CASE("A stripped file names exported functions only, and none for their neighbours",
          "[symbols]") {
    const LoadedFixture fixture("stripped");
    Symbolizer symbolizer;
    const auto module = symbolizer.module(fixture.path(), fixture.build_id());
    const FixturePlace exported = fixture.call("fixture_exported");
    CHECK_THAT(only_function(symbolizer, module, fixture.offset(exported)),
               Catch::Matches("fixture_exported\\+0x[0-9a-f]+"));
    for (const char* function : {"fixture_local", "fixture_method"}) {
        const std::uint64_t offset = fixture.offset(fixture.call(function));
        CHECK(only_function(symbolizer, module, offset) == module_and(offset));
    }
    CHECK(symbolizer.sources()[module].state == SymbolState::stripped);
    CHECK_THAT(symbolizer.sources()[module].note, Catch::Contains("stripped"));
}

TEST_CASE("A file of another build is not used", "[symbols]") {
    const LoadedFixture fixture("full");
    const LoadedFixture other("other");
    REQUIRE(fixture.build_id() != other.build_id());
    const std::uint64_t offset = fixture.offset(fixture.call("fixture_exported"));
    Symbolizer symbolizer;
    const auto module = symbolizer.module(other.path(), fixture.build_id());
    CHECK(only_function(symbolizer, module, offset) == module_and(offset));
    const SymbolSource source = symbolizer.sources()[module];
    CHECK(source.state == SymbolState::mismatch);
    CHECK_FALSE(source.verified);
    CHECK_THAT(source.note, Catch::Contains(hexadecimal(fixture.build_id())) &&
                                Catch::Contains(hexadecimal(other.build_id())));

    SECTION("but the right one elsewhere is") {
        const Folder folder;
        copy_to(fixture.path(), folder / "libfixture.so");
        Symbolizer searching({{}, {folder.string()}});
        check_everything_known(searching, fixture, other.path());
    }
}

TEST_CASE("What is no file gives the module and the offset", "[symbols]") {
    const Folder folder;
    const std::vector<std::uint8_t> id(20, 7);
    const auto state_of = [&](const std::string& path) {
        Symbolizer symbolizer;
        const auto module = symbolizer.module(path, id);
        const auto frames = symbolizer.frames(module, 0x1234);
        REQUIRE(frames.size() == 1);
        CHECK_THAT(std::string(frames[0].function), Catch::EndsWith("+0x1234"));
        CHECK_FALSE(symbolizer.sources()[module].note.empty());
        return symbolizer.sources()[module].state;
    };
    const std::string pipe = (folder / "pipe").string();
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(state_of("/no/such/file") == SymbolState::missing);
    CHECK(state_of("[vdso]") == SymbolState::missing);
    CHECK(state_of("") != SymbolState::lines);
    CHECK(state_of("relative/path") == SymbolState::missing);
    CHECK(state_of(pipe) == SymbolState::missing);
    CHECK(state_of(folder.string()) == SymbolState::missing);
    CHECK(state_of("/dev/zero") == SymbolState::missing);
    std::ofstream((folder / "text").string()) << "no ELF file";
    CHECK(state_of((folder / "text").string()) == SymbolState::unreadable);
}

TEST_CASE("Places that are in no module or in no function", "[symbols]") {
    const LoadedFixture fixture("full");
    Symbolizer symbolizer;
    CHECK(std::string(symbolizer.frames_outside(0xabc)[0].function) == "0xabc");
    const auto module = symbolizer.module(fixture.path(), fixture.build_id());
    CHECK(symbolizer.module(fixture.path(), fixture.build_id()) == module);
    CHECK(symbolizer.sources()[module].state == SymbolState::unused);
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40,
                                       ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
        CHECK(only_function(symbolizer, module, offset) == module_and(offset));
    }
}

TEST_CASE("Damaged files never do harm", "[symbols]") {
    const unsigned seed = Catch::rngSeed() != 0 ? Catch::rngSeed() : 4711;
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const LoadedFixture fixture("full");
    std::ifstream stream(fixture.path(), std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(stream), {}};
    std::vector<std::uint64_t> offsets;
    for (const char* function : {"fixture_exported", "fixture_local", "fixture_method"}) {
        offsets.push_back(fixture.offset(fixture.call(function)));
    }
    const Folder folder;
    for (int round = 0; round < 3000; ++round) {
        std::string bytes = whole;
        if (round % 3 == 0) {
            bytes.resize(std::uniform_int_distribution<std::size_t>(0, whole.size())(random));
        } else {
            const int changes = 1 << (round % 8);
            for (int change = 0; change < changes && !bytes.empty(); ++change) {
                bytes[std::uniform_int_distribution<std::size_t>(0, bytes.size() - 1)(random)] =
                    static_cast<char>(random());
            }
        }
        const std::string path = (folder / std::to_string(round)).string();
        std::ofstream(path, std::ios::binary) << bytes;
        Symbolizer symbolizer;
        const auto module = symbolizer.module(path, {});
        for (const std::uint64_t offset : offsets) {
            for (const SourceFrame& frame : symbolizer.frames(module, offset)) {
                REQUIRE_FALSE(frame.function.empty());
            }
        }
        fs::remove(path);
    }
}
