#include "tools/replay/simulated_source.h"

#include <catch2/catch.hpp>

namespace {

using namespace cachealloc;
using tools::SimulatedSource;

constexpr std::uint64_t kPiece = kGranule;

std::uint64_t sum(const SimulatedSource& source) {
    std::uint64_t bytes = 0;
    source.for_each_memory([&](DeviceAddress, std::uint64_t each) { bytes += each; });
    return bytes;
}

} // namespace

TEST_CASE("a source counts what it gave, up to its limit", "[source]") {
    SimulatedSource source(8 * kMiB);
    const SourceResult first = source.allocate(6 * kMiB);
    REQUIRE(first.status == SourceStatus::done);
    CHECK(source.allocate(4 * kMiB).status == SourceStatus::out_of_memory);
    CHECK(source.allocate(2 * kMiB).status == SourceStatus::done);
    CHECK(source.reserved() == 8 * kMiB);
    CHECK(source.release(first.address, 6 * kMiB).status == SourceStatus::done);
    CHECK(source.reserved() == sum(source));
    CHECK(source.peak() == 8 * kMiB);
    CHECK(source.calls().allocate == 3);
    CHECK(source.calls().changes() == 4);
    CHECK(source.allocate(6 * kMiB).address == first.address);
    CHECK(source.fault().empty());
    CHECK(source.release(first.address, 2 * kMiB).status == SourceStatus::failed);
    CHECK_FALSE(source.fault().empty());
}

TEST_CASE("recorded addresses come in turn until the sizes part", "[source]") {
    const std::vector<tools::RecordedSegment> recorded{
        {64 * kMiB, 2 * kMiB}, {32 * kMiB, 4 * kMiB}, {16 * kMiB, 2 * kMiB}};
    SimulatedSource source(SimulatedSource::kNoLimit, &recorded);
    CHECK(source.allocate(2 * kMiB).address == 64 * kMiB);
    CHECK(source.allocate(6 * kMiB).address > 64 * kMiB);
    CHECK(source.allocate(4 * kMiB).address != 32 * kMiB);
}

TEST_CASE("no two segments share an address, whatever was recorded", "[source]") {
    // The first ends, and another size begins in its middle.
    const std::vector<tools::RecordedSegment> recorded{
        {64 * kMiB, 8 * kMiB}, {66 * kMiB, 2 * kMiB}, {66 * kMiB, 4 * kMiB}};
    SimulatedSource source(SimulatedSource::kNoLimit, &recorded);
    REQUIRE(source.allocate(8 * kMiB).address == 64 * kMiB);
    CHECK(source.release(64 * kMiB, 8 * kMiB).status == SourceStatus::done);
    REQUIRE(source.allocate(2 * kMiB).address == 66 * kMiB);
    CHECK(source.allocate(4 * kMiB).address != 66 * kMiB);
    CHECK(source.allocate(8 * kMiB).address != 64 * kMiB);
}

TEST_CASE("a second mapping takes addresses and no memory", "[source]") {
    SimulatedSource source;
    const DeviceAddress range = source.reserve(64 * kMiB).address;
    REQUIRE(source.map(range, 4 * kPiece, kPiece).status == SourceStatus::done);
    REQUIRE(source.map(range + 4 * kPiece, 4 * kPiece, 4 * kPiece).status == SourceStatus::done);
    CHECK(source.calls().pieces == 5);
    const PieceRun runs[] = {{range + 4 * kPiece, 4 * kPiece}, {range, 2 * kPiece}};
    const SourceResult twice = source.alias(runs, 2);
    REQUIRE(twice.status == SourceStatus::done);
    CHECK(source.reserved() == 8 * kPiece);
    CHECK(sum(source) == 8 * kPiece);
    CHECK(source.calls().remaps == 2);
    CHECK(source.calls().piece_maps == 3);

    std::vector<std::pair<DeviceAddress, std::uint64_t>> parts;
    source.resolve(twice.address + 3 * kPiece, 3 * kPiece,
                   [&](DeviceAddress at, std::uint64_t bytes) { parts.emplace_back(at, bytes); });
    CHECK(parts == std::vector<std::pair<DeviceAddress, std::uint64_t>>{
                       {range + 7 * kPiece, kPiece}, {range, kPiece}, {range + kPiece, kPiece}});
    CHECK(source.fault().empty());

    SECTION("whole pieces go back when no second mapping of them is left") {
        CHECK(source.drop_alias(twice.address, 6 * kPiece).status == SourceStatus::done);
        CHECK(source.unmap(range, 8 * kPiece).status == SourceStatus::done);
        source.unreserve(range, 64 * kMiB);
        CHECK(source.reserved() == 0);
        CHECK(source.peak() == 8 * kPiece);
        CHECK(source.fault().empty());
    }
    SECTION("not before") {
        CHECK(source.unmap(range, kPiece).status == SourceStatus::failed);
    }
    SECTION("not in part") {
        CHECK(source.unmap(range + 5 * kPiece, kPiece).status == SourceStatus::failed);
    }
    SECTION("nor is a part mapped again") {
        const PieceRun part{range + 4 * kPiece, kPiece};
        CHECK(source.alias(&part, 1).status == SourceStatus::failed);
    }
    SECTION("nor anything outside of the range or where memory is") {
        CHECK(source.map(range + 7 * kPiece, kPiece, kPiece).status == SourceStatus::failed);
        CHECK(source.map(range + 64 * kMiB, kPiece, kPiece).status == SourceStatus::failed);
    }
    SECTION("nor does a range with memory end") {
        source.unreserve(range, 64 * kMiB);
        CHECK_FALSE(source.fault().empty());
    }
}
