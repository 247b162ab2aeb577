#include "core/pool/range.h"

#include <catch2/catch.hpp>

using namespace cachealloc;

namespace {

constexpr DeviceAddress kBase = 0x300000000000;
constexpr std::uint64_t kG = kGranule;

} // namespace

TEST_CASE("Range: whole pieces inside a run of memory") {
    Range range;
    REQUIRE(range.begin(kBase, 64 * kG));
    range.note_mapped(kBase, 8 * kG, 4 * kG);
    range.note_mapped(kBase + 8 * kG, 3 * kG, kG);
    PieceRun run = range.whole_pieces(kBase + 512, 11 * kG - 512);
    CHECK(run.address == kBase + 4 * kG);
    CHECK(run.bytes == 7 * kG);
    run = range.whole_pieces(kBase, 7 * kG); // the second piece is not whole
    CHECK(run.address == kBase);
    CHECK(run.bytes == 4 * kG);
    CHECK(range.whole_pieces(kBase + kG, 3 * kG).bytes == 0);
    CHECK(range.whole_pieces(kBase + 8 * kG + 512, kG).bytes == 0);
    CHECK(range.whole_pieces(kBase, 0).bytes == 0);
}

TEST_CASE("Range: as many pieces as some bytes need") {
    Range range;
    REQUIRE(range.begin(kBase, 64 * kG));
    range.note_mapped(kBase, 8 * kG, 4 * kG);
    CHECK(range.pieces_for(kBase, 512).bytes == 4 * kG);
    CHECK(range.pieces_for(kBase, 4 * kG).bytes == 4 * kG);
    CHECK(range.pieces_for(kBase, 4 * kG + 512).bytes == 8 * kG);
}

TEST_CASE("Range: what no stitch maps") {
    Range range;
    REQUIRE(range.begin(kBase, 64 * kG));
    range.note_mapped(kBase, 6 * kG, kG);
    const PieceRun all{kBase, 6 * kG};
    const PieceRun first{kBase, 2 * kG};
    range.note_aliased(first);
    range.note_aliased({kBase + kG, 3 * kG});
    CHECK(range.unaliased(all).address == kBase + 4 * kG);
    CHECK(range.unaliased(all).bytes == 2 * kG);
    CHECK(range.unaliased(first).bytes == 0);
    range.note_alias_gone(first);
    CHECK(range.unaliased(all).address == kBase);
    CHECK(range.unaliased(all).bytes == kG);
    range.note_unmapped(kBase + 4 * kG, 2 * kG);
    CHECK(range.whole_pieces(kBase, 4 * kG).bytes == 4 * kG); // ends where memory ends
}
