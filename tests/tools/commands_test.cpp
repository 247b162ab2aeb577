// What the commands are made of; command_test.py looks at them from outside.
#include "tests/tools/example_recording.h"
#include "tests/tools/temporary_file.h"
#include "tools/commands/command_line.h"
#include "tools/commands/preload.h"
#include "tools/commands/run.h"
#include "tools/commands/stack_names.h"
#include "tools/commands/text.h"

#include <catch2/catch.hpp>

using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;

TEST_CASE("numbers are written for people") {
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(1023) == "1023 B");
    CHECK(bytes_text(1536) == "1.50 KiB");
    CHECK(bytes_text((std::uint64_t{1} << 20) - 1) == "1.00 MiB");
    CHECK(bytes_text(std::uint64_t{141} << 30) == "141 GiB");
    CHECK(bytes_text(~std::uint64_t{0}) == "16384 PiB");
    CHECK(bytes_change_text(-1536) == "-1.50 KiB");
    CHECK(bytes_change_text(1) == "+1 B");
    CHECK(duration_text(12) == "12 ns");
    CHECK(duration_text(12'345) == "12.3 us");
    CHECK(duration_text(7.25e9) == "7.25 s");
    CHECK(duration_text(200e9) == "3 min 20 s");
    CHECK(duration_text(2.5 * 3600e9) == "2 h 30 min");
    CHECK(duration_text(1e30) == "years");
    CHECK(count_text(0) == "0");
    CHECK(count_text(999) == "999");
    CHECK(count_text(1'234'567) == "1,234,567");
    CHECK(share_text(1, 3) == "33 %");
    CHECK(share_text(1, 0) == "-");
    CHECK(cut("abcdef", 6) == "abcdef");
    CHECK(cut("abcdefg", 6) == "abcd..");
    CHECK(wrapped("one two three", 2, 9) == "  one two\n      three\n");
}

TEST_CASE("functions are shortened to their names") {
    CHECK(short_function("int ns::make<int, std::vector<int>>(int, char (*)(int))") == "ns::make");
    CHECK(short_function("main") == "main");
    CHECK(short_function("(anonymous namespace)::grow(unsigned long)") == "grow");
    CHECK(short_function("operator new(unsigned long)") == "operator new(unsigned long)");
    CHECK(short_function("libfoo.so+0x1a2b") == "libfoo.so+0x1a2b");
    CHECK(short_function("<unknown>") == "<unknown>");
    CHECK(last_scope("lib::detail::Pool::take") == "Pool::take");
    CHECK(last_scope("Pool::take") == "Pool::take");
    CHECK(last_scope("take") == "take");
}

TEST_CASE("bytes are read with their units") {
    std::uint64_t bytes = 0;
    CHECK((parse_bytes("4096", bytes) && bytes == 4096));
    CHECK((parse_bytes("64K", bytes) && bytes == 65536));
    CHECK((parse_bytes("1.5GiB", bytes) && bytes == std::uint64_t{3} << 29));
    for (const char* const text : {"", "M", "-1", "1X", "1KK", "nan", "1e30"})
        CHECK_FALSE(parse_bytes(text, bytes));
}

TEST_CASE("the preload comes behind sanitizers and before what was there") {
    CHECK(preload_text("/x/libcachealloc.so", {}, "") == "/x/libcachealloc.so");
    CHECK(preload_text("/x/libcachealloc.so", {"libasan.so.8"}, "a.so /y/libcachealloc.so:b.so") ==
          "libasan.so.8:/x/libcachealloc.so:a.so:b.so");
    CHECK(preload_text("/x/libcachealloc.so", {"libasan.so.8"}, "/lib/libasan.so:a.so") ==
          "/lib/libasan.so:/x/libcachealloc.so:a.so");
}

TEST_CASE("programs are found as the system finds them") {
    CHECK(program_path("sh").ends_with("/sh"));
    CHECK(program_path("/bin/sh") == "/bin/sh");
    CHECK(program_path("/etc/passwd").empty());
    CHECK(program_path("no-such-program-anywhere").empty());
    CHECK(sanitizer_runtimes("/bin/sh").empty());
    CHECK(sanitizer_runtimes("/etc/passwd").empty());
    CHECK(sanitizer_runtimes("/nowhere").empty());
}

TEST_CASE("the name of a recording is made of the process") {
    CHECK(expand_output("/t/%e.%p.trace", 42, "/bin/app") == "/t/app.42.trace");
    CHECK(expand_output("100%", 42, "app") == "100%");
    CHECK(expand_output("%x", 42, "app") == "%x");
}

TEST_CASE("a stack in brief leaves out what most stacks share") {
    TraceBuilder builder;
    builder.module("/opt/app/train", 0x400000, 0x400000, 0x500000, "build-id-of-train---");
    std::vector<std::uint32_t> stacks;
    for (std::uint64_t i = 0; i < 8; ++i)
        stacks.push_back(builder.stack({0x400100, 0x400200 + i, 0x400300 + i / 4, 0x400400}));
    const std::uint32_t usual = builder.stack({0x400100, 0x400400});
    const TemporaryFile written(builder.bytes());
    const Trace trace(written.path());
    StackNames names(trace, false);
    CHECK(names.brief(stacks[3], 80) == "train+0x203");
    CHECK(names.brief(usual, 80) == "train+0x100 < train+0x400"); // nothing else is left
}

TEST_CASE("stacks are named without our own frames, and in brief without CUDA's") {
    TraceBuilder builder;
    cachealloc::tests::example_recording(builder);
    const TemporaryFile written(builder.bytes());
    const Trace trace(written.path());
    StackNames names(trace, false);
    const std::vector<NamedFrame>& frames = names.frames(1);
    REQUIRE(frames.size() == 3);
    CHECK(frames[0].cuda);
    CHECK(frames[0].function == "libcudart.so.13+0x20");
    CHECK(frames[1].module == "/opt/app/train");
    CHECK(frames[1].offset == 0x100);
    CHECK(names.brief(1, 80) == "train+0x100 < train+0x200");
    CHECK(names.brief(1, 12) == "train+0x100");
    CHECK(names.brief(0, 80) == "(no stack)");
    CHECK(names.brief(99, 80) == "(unreadable stack)");
    CHECK(names.key(1) != names.key(2));
    CHECK(names.key(0).empty());
    // Where the build-id is known the path does not matter.
    CHECK(names.key(1).find("/opt") == std::string::npos);
}
