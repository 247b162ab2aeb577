#include "tools/trace/modules.h"

#include "tests/tools/temporary_file.h"
#include "tests/tools/trace_builder.h"

#include <catch2/catch.hpp>

using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;

namespace {

Modules modules_of(TraceBuilder& builder) {
    const TemporaryFile written(builder.bytes());
    return Modules(TraceFile(written.path())); // keeps nothing of the file
}

} // namespace

TEST_CASE("an address belongs to the module that was there when its stack was seen") {
    TraceBuilder builder;
    builder.module("/bin/app", 0x1000, 0x1000, 0x2000, "id", 0); // record 0
    builder.module("/lib/a.so", 0x5000, 0x5000, 0x6000);         // record 1
    builder.unload(0x5000);                                      // record 2
    builder.module("/lib/b.so", 0x4000, 0x5000, 0x7000);         // record 3
    const Modules modules = modules_of(builder);
    CHECK(modules.damaged() == 0);

    const auto path = [&](std::uint64_t address, std::uint32_t records) {
        const ModuleMatch match = modules.find(address, records);
        return match.module == nullptr ? std::string() : match.module->path;
    };
    CHECK(path(0x1800, 4) == "/bin/app");
    CHECK(path(0x5800, 2) == "/lib/a.so");
    CHECK(path(0x5800, 4) == "/lib/b.so");
    CHECK(modules.find(0x5800, 2).fit == ModuleFit::exact);
    CHECK(modules.find(0x5800, 2).offset == 0x800);
    CHECK(modules.find(0x5800, 4).offset == 0x1800);
    // Between unload and load nothing was there: the answer is a guess, and says so.
    CHECK(modules.find(0x5800, 3).fit == ModuleFit::changed);
    // Seen before it was in the log, as a stack captured while the module was being loaded.
    CHECK(modules.find(0x6800, 3).fit == ModuleFit::changed);
    CHECK(path(0x6800, 3) == "/lib/b.so");
    CHECK(modules.find(0x3000, 4).fit == ModuleFit::none);
    CHECK(modules.find(0x2000, 4).module == nullptr); // the end is not in it
    CHECK(modules.find(0, 4).module == nullptr);
    CHECK(modules.find(~std::uint64_t{0}, 4).module == nullptr);
}

TEST_CASE("modules that overlap are all considered") {
    TraceBuilder builder;
    builder.module("/lib/large.so", 0, 0x1000, 0x9000);
    builder.module("/lib/small.so", 0, 0x2000, 0x3000);
    const Modules modules = modules_of(builder);
    CHECK(modules.find(0x2800, 2).module->path == "/lib/small.so");
    CHECK(modules.find(0x8000, 2).module->path == "/lib/large.so");
}

TEST_CASE("records that make no sense are counted and left out") {
    TraceBuilder builder;
    builder.module("/lib/empty.so", 0, 0x2000, 0x2000);
    builder.unload(0x9000); // was never loaded
    builder.module("/lib/evil\x1b[2J.so", 0, 0x4000, 0x5000);
    const Modules modules = modules_of(builder);
    CHECK(modules.damaged() == 2);
    REQUIRE(modules.all().size() == 1);
    CHECK(modules.all()[0].path == "/lib/evil?[2J.so");
}

TEST_CASE("the recorder's own module is marked") {
    TraceBuilder builder;
    builder.module("/lib/libcachealloc.so", 0, 0x1000, 0x2000, "", 1);
    CHECK(modules_of(builder).find(0x1000, 1).module->own);
}
