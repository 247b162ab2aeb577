#include "tools/trace/live_table.h"

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

/// The slots of the live table in what the builder wrote; every second one is free.
trace::EventRecord* slots(std::vector<std::byte>& bytes) {
    const auto& header = *reinterpret_cast<const trace::Header*>(bytes.data());
    for (const trace::Section& section : header.sections) {
        if (section.type == trace::SectionType::live)
            return reinterpret_cast<trace::EventRecord*>(&bytes[section.offset]);
    }
    return nullptr;
}

} // namespace

TEST_CASE("the live table gives memory and segments, and counts what it cannot use") {
    TraceBuilder builder;
    for (std::uint64_t i = 0; i < 5; ++i)
        builder.alloc(i * 4096, 100 + i);
    builder.segment_alloc(0, 1 << 21);
    builder.alloc(1 << 20, 7);
    builder.free(1 << 20);
    std::vector<std::byte> bytes = builder.bytes();
    SECTION("sound") {
        const TemporaryFile written(bytes);
        const LiveTable live{TraceFile(written.path())};
        REQUIRE(live.memory().size() == 5);
        CHECK(live.memory()[3].size == 103);
        REQUIRE(live.segments().size() == 1);
        CHECK(live.segments()[0].size == 1 << 21);
        CHECK(live.torn() + live.unknown() == 0);
        CHECK(live.complete());
    }
    SECTION("damaged, newer, and one entry twice") {
        trace::EventRecord* const table = slots(bytes);
        table[0].size = 1;
        table[2].memory = static_cast<trace::MemoryType>(99);
        table[2].check = trace::check_word(table[2]);
        std::memcpy(static_cast<void*>(&table[5]), &table[4], sizeof(table[4]));
        const TemporaryFile written(bytes);
        const LiveTable live{TraceFile(written.path())};
        CHECK(live.memory().size() == 3);
        CHECK(live.torn() == 1);
        CHECK(live.unknown() == 1);
    }
    SECTION("cut, or once full") {
        reinterpret_cast<trace::Header*>(bytes.data())->counters.live_dropped = 1;
        const TemporaryFile full(bytes);
        CHECK_FALSE(LiveTable{TraceFile(full.path())}.complete());
        bytes.resize(bytes.size() - 2 * trace::kChunkBytes);
        const TemporaryFile cut(bytes);
        CHECK_FALSE(LiveTable{TraceFile(cut.path())}.complete());
    }
}
