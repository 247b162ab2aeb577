#include "tools/replay/sequence_file.h"

#include "tests/tools/replay/sequences.h"
#include "tests/tools/trace_builder.h"

#include <catch2/catch.hpp>
#include <zlib.h>

namespace {

using namespace cachealloc;
using namespace cachealloc::tests;
using tools::AllocationSequence;
using tools::read_sequence;
using tools::SequenceEvent;
using tools::SequenceOp;

AllocationSequence read(std::string_view text) {
    const TextFile file(text);
    return read_sequence(file.path());
}

std::string why(std::string_view text) {
    const TextFile file(text);
    const std::string error = trace_error([&] { static_cast<void>(read_sequence(file.path())); });
    INFO(error);
    REQUIRE(error.starts_with(file.path() + ":"));
    return error.substr(file.path().size() + 1);
}

void require_events(const AllocationSequence& sequence,
                    const std::vector<std::pair<SequenceOp, std::uint32_t>>& wanted) {
    REQUIRE(sequence.events.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        CHECK(sequence.events[i].op == wanted[i].first);
        CHECK(sequence.events[i].id == wanted[i].second);
    }
}

constexpr std::string_view kEvents = "op,id,bytes,stream,us,site\n"
                                     "a,7,1000,0,1,2\n"
                                     "a,8,2000,5,1,2\r\n"
                                     "f,7,,,9,\n"
                                     "\n"
                                     "a,7,300,0,,\n"; // the id again; no newline is needed either

} // namespace

TEST_CASE("events: ids may come again, streams are numbered", "[sequence]") {
    const AllocationSequence sequence = read(kEvents);
    require_events(sequence, {{SequenceOp::allocate, 0},
                              {SequenceOp::allocate, 1},
                              {SequenceOp::release, 0},
                              {SequenceOp::allocate, 2}});
    CHECK(sequence.ids == 3);
    CHECK(sequence.streams == 2);
    CHECK(sequence.events[1].stream == 1);
    CHECK(sequence.peak_requested == 3000);
    CHECK(sequence.events[2].bytes == 1000);
    CHECK_FALSE(sequence.recorded);
}

TEST_CASE("intervals: at one time what ends makes room first", "[sequence]") {
    const AllocationSequence sequence = read("id,lower,upper,size\n"
                                             "0,5,9,100\n"
                                             "1,2,5,700");
    require_events(sequence, {{SequenceOp::allocate, 0},
                              {SequenceOp::release, 0},
                              {SequenceOp::allocate, 1},
                              {SequenceOp::release, 1}});
    CHECK(sequence.peak_requested == 700);
    CHECK(sequence.events[0].bytes == 700);
}

TEST_CASE("compressed text is text", "[sequence]") {
    TextFile file("");
    gzFile out = ::gzopen(file.path().c_str(), "wb");
    ::gzwrite(out, kEvents.data(), static_cast<unsigned>(kEvents.size()));
    ::gzclose(out);
    CHECK(read_sequence(file.path()).ids == 3);

    SECTION("cut, it is an error") {
        REQUIRE(::truncate(file.path().c_str(), 40) == 0);
        const std::string error =
            trace_error([&] { static_cast<void>(read_sequence(file.path())); });
        CHECK(error.find("cut") != std::string::npos);
    }
}

TEST_CASE("bad lines say where, what and what is allowed", "[sequence]") {
    const std::string title = "op,id,bytes,stream,us,site\na,1,10,0,0,0\n";
    CHECK(why("").starts_with("1: neither a recording nor"));
    CHECK(why("op,id\n").find("id,lower,upper,size") != std::string::npos);
    CHECK(why(title + "a,2,10,0,0") == "3: 5 fields; 6 are allowed");
    CHECK(why(title + "x,2,10,0,0,0").starts_with("3: op is 'x'; a (allocate)"));
    CHECK(why(title + "a,1,10,0,0,0") == "3: id 1 is allocated and live already");
    CHECK(why(title + "f,2,,,0,") == "3: id 2 is freed and not live");
    CHECK(why(title + "f,1,,,0,\nf,1,,,0,") == "4: id 1 is freed and not live");
    for (const char* bytes :
         {"0", "-1", "", "1e3", "10 ", "281474976710657", "99999999999999999999999", "\x1b[2J"}) {
        const std::string said = why(title + "a,2," + bytes + ",0,0,0");
        CHECK(said.starts_with("3: bytes is '"));
        CHECK(said.ends_with("a whole number from 1 to 281474976710656 is allowed"));
        CHECK(said.find('\x1b') == std::string::npos);
    }
    CHECK(
        why("id,lower,upper,size\n0,5,5,10").starts_with("2: upper is '5'; a whole number from 6"));
    CHECK(why("id,lower,upper,size\n0,1,5,0").starts_with("2: size is '0'"));
    CHECK(why(title + std::string(5000, '1')).starts_with("3: longer than"));
    CHECK_FALSE(trace_error([] { static_cast<void>(read_sequence("/no/such/file")); }).empty());
    CHECK_FALSE(trace_error([] { static_cast<void>(read_sequence("/tmp")); }).empty());
}

TEST_CASE("of a recording the largest pool is taken, or the one asked for", "[sequence]") {
    TraceBuilder builder;
    builder.setting("options", "slack_mb:7");
    builder.segment_alloc(2 * kMiB, 2 * kMiB, false);
    builder.alloc(2 * kMiB, 700, {.extra = 324});
    builder.free(2 * kMiB, {}, true);
    builder.free_completed(2 * kMiB, 700);
    builder.alloc(2 * kMiB, 600, {.flags = trace::kStreamOrdered, .extra = 424});
    builder.segment_alloc(8 * kMiB, 4 * kMiB, true, {.pool = 3});
    builder.alloc(8 * kMiB, 3 * kMiB, {.thread = 2, .pool = 3});
    builder.alloc(64 * kMiB, 99 * kMiB, {.memory = trace::MemoryType::device, .pool = 255});
    builder.free(8 * kMiB, {.pool = 3});
    builder.segment_free(8 * kMiB, {.pool = 3});
    const TemporaryFile file(builder.bytes());

    const AllocationSequence largest = read_sequence(file.path());
    require_events(largest, {{SequenceOp::allocate, 0}, {SequenceOp::release, 0}});
    REQUIRE(largest.recorded);
    CHECK(largest.recorded->pool == 3);
    CHECK(largest.recorded->pools == 2);
    CHECK(largest.recorded->peak_reserved == 4 * kMiB);
    CHECK(largest.peak_requested == 3 * kMiB);

    const AllocationSequence first = read_sequence(file.path(), 0);
    require_events(first, {{SequenceOp::allocate, 0},
                           {SequenceOp::release, 0},
                           {SequenceOp::complete, 0},
                           {SequenceOp::allocate, 1}});
    CHECK_FALSE(first.events[1].settled);
    CHECK(first.events[3].ordered_by_stream);
    CHECK(first.recorded->options == "slack_mb:7");
    CHECK(first.recorded->whole);
    REQUIRE(first.recorded->segments.size() == 1);
    CHECK(first.recorded->segments[0].address == 2 * kMiB);

    const std::string error =
        trace_error([&] { static_cast<void>(read_sequence(file.path(), 9)); });
    CHECK(error.find("--pool may be 0, 3") != std::string::npos);
}
