#include "tools/trace/trace.h"

#include "tests/tools/temporary_file.h"
#include "tests/tools/trace_builder.h"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;
namespace trace = cachealloc::trace;

TEST_CASE("a process runs if it is there and has the file mapped") {
    const auto written = [](trace::RunState state, long pid) {
        TraceBuilder builder;
        builder.header().state = static_cast<std::uint32_t>(state);
        builder.header().pid = static_cast<std::uint32_t>(pid);
        return builder.bytes();
    };
    const TemporaryFile ours(written(trace::RunState::recording, ::getpid()));
    CHECK_FALSE(Trace(ours.path()).running()); // as after the number was given away again
    const int descriptor = ::open(ours.path().c_str(), O_RDONLY);
    void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, descriptor, 0);
    REQUIRE(mapped != MAP_FAILED);
    CHECK(Trace(ours.path()).running());
    ::munmap(mapped, 4096);
    ::close(descriptor);

    for (const long pid : {0L, 0x7fffffffL, -1L}) {
        const TemporaryFile other(written(trace::RunState::recording, pid));
        CHECK_FALSE(Trace(other.path()).running());
    }
    const TemporaryFile ended(written(trace::RunState::clean_exit, ::getpid()));
    CHECK_FALSE(Trace(ended.path()).running());
}
