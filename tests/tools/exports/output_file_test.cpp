// A file appears whole or not at all, and nothing is overwritten unasked.
#include "tests/tools/exports/written.h"
#include "tools/exports/output_file.h"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

using namespace cachealloc::tests;
using cachealloc::tools::OutputError;
using cachealloc::tools::OutputFile;

namespace {

std::string error_of(const std::string& path, bool overwrite = false) {
    try {
        const OutputFile output(path, overwrite);
    } catch (const OutputError& error) {
        return error.what();
    }
    return {};
}

} // namespace

TEST_CASE("A file has its name only once it is whole", "[exports]") {
    const Folder folder;
    const std::string path = folder / "new";
    {
        OutputFile output(path, false);
        output.write("some text");
        CHECK_FALSE(std::filesystem::exists(path));
    }
    CHECK(folder.files() == 0);
    OutputFile output(path, false);
    const std::string large(3 << 20, 'x');
    output.write("a");
    output.write(large);
    output.write('b');
    output.write_number(4096U);
    output.write_number(255U, 16);
    CHECK(output.size() == large.size() + 8);
    CHECK_FALSE(std::filesystem::exists(path));
    output.commit();
    CHECK(content(path) == "a" + large + "b4096ff");
    CHECK(folder.files() == 1);
    struct stat status = {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    const mode_t mask = umask(0);
    umask(mask);
    CHECK((status.st_mode & 0777) == (0666 & ~mask));
}

TEST_CASE("An existing file is kept unless it may be overwritten", "[exports]") {
    const Folder folder;
    const std::string path = folder / "old";
    std::ofstream(path) << "old";
    CHECK_THAT(error_of(path), Catch::Contains("exists") && Catch::Contains("-f"));
    {
        OutputFile output(path, true);
        output.write("new");
        CHECK(content(path) == "old");
    }
    CHECK(content(path) == "old");
    {
        OutputFile output(path, true);
        output.write("new");
        output.commit();
    }
    CHECK(content(path) == "new");

    SECTION("through a link, which stays one") {
        std::filesystem::create_symlink(path, folder / "link");
        OutputFile output(folder / "link", true);
        output.write("newer");
        output.commit();
        CHECK(std::filesystem::is_symlink(folder / "link"));
        CHECK(content(path) == "newer");
    }
    SECTION("also one that came there meanwhile") {
        OutputFile output(folder / "late", false);
        std::ofstream(folder / "late") << "first";
        CHECK_THROWS_AS(output.commit(), OutputError);
        CHECK(content(folder / "late") == "first");
    }
}

TEST_CASE("What cannot be written is said with its name", "[exports]") {
    const Folder folder;
    CHECK_THAT(error_of("/no/such/folder/file"), Catch::Contains("/no/such/folder/file"));
    CHECK_THAT(error_of(folder / ""), Catch::Contains("directory"));
    OutputFile full("/dev/full", false);
    full.write("text");
    CHECK_THROWS_AS(full.commit(), OutputError);
    OutputFile null("/dev/null", false);
    null.write("text");
    null.commit();
}
