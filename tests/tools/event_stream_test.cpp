#include "tools/trace/event_stream.h"

#include "tests/tools/temporary_file.h"
#include "tests/tools/trace_builder.h"

#include <catch2/catch.hpp>

#include <cstring>

using cachealloc::tests::EventDetails;
using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;
namespace trace = cachealloc::trace;

namespace {

std::vector<Event> all_of(const EventStream& stream) {
    std::vector<Event> events;
    EventCursor cursor(stream);
    Event event;
    while (cursor.next(event))
        events.push_back(event);
    return events;
}

EventDetails by(std::uint32_t thread) {
    EventDetails details;
    details.thread = thread;
    return details;
}

/// Where record `index` of chunk `chunk` lies in what the builder wrote.
std::size_t record_at(const std::vector<std::byte>& bytes, std::size_t chunk, std::size_t index) {
    const auto& header = *reinterpret_cast<const trace::Header*>(bytes.data());
    for (const trace::Section& section : header.sections) {
        if (section.type == trace::SectionType::events)
            return section.offset + chunk * trace::kChunkBytes + sizeof(trace::ChunkHeader) +
                   index * sizeof(trace::EventRecord);
    }
    return 0;
}

} // namespace

TEST_CASE("the events of several threads come in the order of their times") {
    TraceBuilder builder;
    // Threads take turns in runs of different lengths, so that chunks overlap in every way.
    constexpr std::uint64_t kEvents = 1000;
    for (std::uint64_t i = 0; i < kEvents; ++i)
        builder.alloc(i, 512, by(static_cast<std::uint32_t>(1 + i * i / 7 % 5)));
    const TemporaryFile written(builder.bytes());
    const TraceFile file(written.path());
    const EventStream stream(file);
    CHECK(stream.counts().valid == kEvents);
    CHECK(stream.counts().torn == 0);
    CHECK(stream.counts().first_claim == 1);
    CHECK(stream.counts().first_time == TraceBuilder::kStart + 1000);
    CHECK(stream.counts().last_time == TraceBuilder::kStart + 1000 * kEvents);
    const std::vector<Event> events = all_of(stream);
    REQUIRE(events.size() == kEvents);
    for (std::uint64_t i = 0; i < kEvents; ++i)
        REQUIRE(events[i].address == i);
}

TEST_CASE("a ring that came round holds the latest chunks only") {
    TraceBuilder builder;
    builder.ring_chunks(3);
    constexpr std::uint64_t kEvents = 5 * trace::kChunkRecords + 10;
    for (std::uint64_t i = 0; i < kEvents; ++i)
        builder.alloc(i, 512);
    const TemporaryFile written(builder.bytes());
    const TraceFile file(written.path());
    const EventStream stream(file);
    CHECK(file.header().counters.overwritten == 3 * trace::kChunkRecords);
    CHECK(stream.counts().first_claim == 4);
    CHECK(stream.counts().valid == kEvents - 3 * trace::kChunkRecords);
    CHECK(stream.counts().older == trace::kChunkRecords - 10);
    CHECK(all_of(stream).front().address == 3 * trace::kChunkRecords);
}

TEST_CASE("a thread that records little does not stand for the others") {
    TraceBuilder builder;
    builder.ring_chunks(4);
    builder.alloc(7, 512, by(2)); // its chunk stays
    for (std::uint64_t i = 0; i < 6 * trace::kChunkRecords; ++i)
        builder.alloc(i, 512);
    const TemporaryFile written(builder.bytes());
    const TraceFile file(written.path());
    const EventStream stream(file);
    CHECK(stream.counts().valid == 3 * trace::kChunkRecords + 1);
    CHECK(stream.counts().first_time == TraceBuilder::kStart + 1000);
    CHECK(stream.counts().complete_since ==
          TraceBuilder::kStart + 1000 * (2 + 3 * trace::kChunkRecords));
}

TEST_CASE("damaged records are left out and counted by their kind") {
    TraceBuilder builder;
    for (std::uint64_t i = 0; i < 10; ++i)
        builder.alloc(i, 512);
    std::vector<std::byte> bytes = builder.bytes();
    const auto record = [&](std::size_t index) {
        return reinterpret_cast<trace::EventRecord*>(&bytes[record_at(bytes, 0, index)]);
    };
    record(2)->size = 513;   // the check word does not fit any more
    record(4)->sequence = 0; // never finished
    record(6)->kind = static_cast<trace::EventKind>(200);
    record(6)->check = trace::check_word(*record(6));
    record(7)->device = 64;
    record(7)->check = trace::check_word(*record(7));
    record(8)->sequence = trace::event_sequence(9, 8);
    const TemporaryFile written(bytes);
    const TraceFile file(written.path());
    const EventStream stream(file);
    CHECK(stream.counts().torn == 2);
    CHECK(stream.counts().unknown == 2);
    CHECK(stream.counts().older == 1);
    std::vector<std::uint64_t> addresses;
    for (const Event& event : all_of(stream))
        addresses.push_back(event.address);
    CHECK(addresses == std::vector<std::uint64_t>{0, 1, 3, 5, 9});
}

TEST_CASE("a chunk that is there twice counts once") {
    TraceBuilder builder;
    for (std::uint64_t i = 0; i < 2 * trace::kChunkRecords; ++i)
        builder.alloc(i, 512);
    std::vector<std::byte> bytes = builder.bytes();
    const std::size_t first = record_at(bytes, 0, 0) - sizeof(trace::ChunkHeader);
    std::memcpy(&bytes[first + trace::kChunkBytes], &bytes[first], trace::kChunkBytes);
    const TemporaryFile written(bytes);
    const TraceFile file(written.path());
    const EventStream stream(file);
    CHECK(stream.counts().valid == trace::kChunkRecords);
    CHECK(stream.counts().foreign == trace::kChunkRecords);
    CHECK(all_of(stream).size() == trace::kChunkRecords);
}

TEST_CASE("times never go back, whatever the records say") {
    TraceBuilder builder;
    for (const std::uint64_t time : {5000, 3000, 9000, 1000, 9000}) {
        builder.at(time);
        builder.alloc(time, 512);
    }
    const TemporaryFile written(builder.bytes());
    const TraceFile file(written.path());
    const EventStream stream(file);
    std::vector<std::uint64_t> times;
    for (const Event& event : all_of(stream))
        times.push_back(event.time);
    CHECK(times == std::vector<std::uint64_t>{5000, 5000, 9000, 9000, 9000});
}

TEST_CASE("records that are overwritten between two passes vanish and are counted") {
    TraceBuilder builder;
    for (std::uint64_t i = 0; i < 20; ++i)
        builder.alloc(i, 512);
    const std::vector<std::byte> bytes = builder.bytes();
    const TemporaryFile written(bytes);
    const TraceFile file(written.path());
    const EventStream stream(file);
    std::FILE* const again = std::fopen(written.path().c_str(), "r+b");
    REQUIRE(again != nullptr);
    std::fseek(again, static_cast<long>(record_at(bytes, 0, 3)), SEEK_SET);
    std::fputc(0xff, again);
    std::fclose(again);
    EventCursor cursor(stream);
    Event event;
    std::uint64_t seen = 0;
    while (cursor.next(event))
        ++seen;
    CHECK(seen == 19);
    CHECK(cursor.vanished() == 1);
}
