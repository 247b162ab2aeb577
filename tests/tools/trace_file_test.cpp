#include "tools/trace/trace_file.h"

#include "tests/tools/example_recording.h"
#include "tests/tools/temporary_file.h"
#include "tools/trace/trace.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>

#include <fcntl.h>
#include <unistd.h>

using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;
namespace trace = cachealloc::trace;

namespace {

using Bytes = std::vector<std::byte>;
using Catch::Matchers::Contains;

Bytes example() {
    TraceBuilder builder;
    cachealloc::tests::example_recording(builder);
    return builder.bytes();
}

trace::Header& header_of(Bytes& bytes) {
    return *reinterpret_cast<trace::Header*>(bytes.data());
}

trace::Section& section_of(Bytes& bytes, trace::SectionType type) {
    trace::Header& header = header_of(bytes);
    return *std::find_if(std::begin(header.sections), std::end(header.sections),
                         [&](const trace::Section& one) { return one.type == type; });
}

/// The message with which a file is refused.
std::string refusal(const Bytes& bytes) {
    const TemporaryFile file(bytes);
    try {
        const TraceFile opened(file.path());
    } catch (const TraceError& error) {
        return error.what();
    }
    return "accepted";
}

bool notes(const TraceFile& file, const std::string& text) {
    return std::any_of(file.notes().begin(), file.notes().end(), [&](const std::string& note) {
        return note.find(text) != std::string::npos;
    });
}

} // namespace

TEST_CASE("a sound file is opened with its header and sections") {
    const TemporaryFile written(example());
    const TraceFile file(written.path());
    CHECK(file.header().pid == 4242);
    CHECK(file.header().state == trace::RunState::clean_exit);
    CHECK(file.header().seen == trace::kOutOfMemory);
    CHECK(file.header().latest.ticks == TraceBuilder::kStart + 14000);
    CHECK(file.sections().size() == 9);
    CHECK(file.section(trace::SectionType::stacks).elements() == 2);
    CHECK(file.section(trace::SectionType::events).bytes == trace::kChunkBytes);
    CHECK(file.notes().empty());
}

TEST_CASE("a header that cannot be used is refused with one line that names the file") {
    struct Case {
        const char* message;
        std::function<void(Bytes&)> spoil;
    };
    const Case cases[] = {
        {"is empty", [](Bytes& bytes) { bytes.clear(); }},
        {"is not a recording", [](Bytes& bytes) { header_of(bytes).magic[0] = 'X'; }},
        {"is not a recording", [](Bytes& bytes) { bytes.resize(7); }},
        {"is cut within", [](Bytes& bytes) { bytes.resize(4095); }},
        {"another byte order", [](Bytes& bytes) { header_of(bytes).byte_order = 0x04030201; }},
        {"format version 2.", [](Bytes& bytes) { header_of(bytes).major = 2; }},
        {"damaged header", [](Bytes& bytes) { header_of(bytes).header_bytes = 64; }},
        {"damaged header", [](Bytes& bytes) { header_of(bytes).section_count = 33; }},
    };
    for (const Case& one : cases) {
        Bytes bytes = example();
        one.spoil(bytes);
        const std::string message = refusal(bytes);
        CHECK_THAT(message, Contains(one.message) && Contains("cachealloc-"));
        CHECK(message.find('\n') == std::string::npos);
    }
    CHECK_THROWS_WITH(TraceFile("/"), Contains("directory"));
    CHECK_THROWS_WITH(TraceFile("/dev/null"), Contains("regular"));
    CHECK_THROWS_WITH(TraceFile("/nowhere/x.trace"), Contains("cannot be opened"));
}

TEST_CASE("a newer minor version is read, with what it adds left out") {
    Bytes bytes = example();
    header_of(bytes).minor = 7;
    trace::Section& added = header_of(bytes).sections[header_of(bytes).section_count++];
    added.type = static_cast<trace::SectionType>(77);
    const TemporaryFile written(bytes);
    const TraceFile file(written.path());
    CHECK(file.header().minor == 7);
    CHECK(notes(file, "section type 77"));
}

TEST_CASE("sections that do not hold together are empty, not believed") {
    const auto opened = [](trace::SectionType type, auto spoil) {
        Bytes bytes = example();
        spoil(section_of(bytes, type));
        const TemporaryFile written(bytes);
        const TraceFile file(written.path());
        CHECK(!file.notes().empty());
        return file.section(type).bytes;
    };
    constexpr std::uint64_t kHuge = ~std::uint64_t{0};
    using Type = trace::SectionType;
    CHECK(opened(Type::stacks, [](trace::Section& s) { s.stride = 8; }) == 0);
    CHECK(opened(Type::stacks, [](trace::Section& s) { s.stride = 0; }) == 0);
    CHECK(opened(Type::events, [](trace::Section& s) { s.stride = 8192; }) == 0);
    CHECK(opened(Type::live, [](trace::Section& s) { s.offset = 0; }) == 0);
    CHECK(opened(Type::live, [](trace::Section& s) { s.offset += 8; }) == 0);
    CHECK(opened(Type::live, [](trace::Section& s) { s.offset = kHuge - 4095; }) == 0);
    CHECK(opened(Type::frames, [](trace::Section& s) { s.used = s.length = kHuge; }) > 0);
}

TEST_CASE("a file that is cut is read as far as it goes") {
    const Bytes whole = example();
    for (std::size_t length = trace::kHeaderBytes; length < whole.size(); length += 512) {
        const TemporaryFile written(
            Bytes(whole.begin(), whole.begin() + static_cast<long>(length)));
        const Trace trace(written.path());
        CHECK(notes(trace.file, "cut"));
        for (const TraceSection& section : trace.file.sections())
            CHECK(section.bytes + section.offset <=
                  std::max<std::uint64_t>(length, section.offset));
    }
}

TEST_CASE("a file that shrinks while it is open gives what is left") {
    const TemporaryFile written(example());
    const TraceFile file(written.path());
    REQUIRE(::truncate(written.path().c_str(), 5000) == 0);
    CHECK(file.load(trace::SectionType::events).empty());
    char byte = 0;
    CHECK(file.read(4999, &byte, 1) == 1);
    CHECK(file.read(5000, &byte, 1) == 0);
    CHECK(file.read(~std::uint64_t{0}, &byte, 1) == 0);
}

TEST_CASE("a sparse file that claims more than any memory is refused") {
    Bytes bytes = example();
    section_of(bytes, trace::SectionType::frames).used = std::uint64_t{1} << 40;
    section_of(bytes, trace::SectionType::frames).length = std::uint64_t{1} << 40;
    const TemporaryFile written(bytes);
    REQUIRE(::truncate(written.path().c_str(), std::int64_t{1} << 41) == 0);
    CHECK_THROWS_WITH(Trace(written.path()), Contains("frames"));
}

TEST_CASE("a latest moment that was being written is not believed") {
    Bytes bytes = example();
    header_of(bytes).latest_sequence = 3;
    const TemporaryFile written(bytes);
    const TraceFile file(written.path());
    CHECK(file.header().latest.ticks == file.header().start.ticks);
    CHECK(notes(file, "latest moment"));
}
