#include "tools/analysis/fragmentation.h"

#include <catch2/catch.hpp>

using namespace cachealloc::tools;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kPiece = 2 * kMiB;
constexpr std::uint64_t kRange = std::uint64_t{1} << 40;

Block pooled(std::uint64_t address, std::uint64_t size, std::uint32_t extra = 0) {
    Block block;
    block.address = address;
    block.size = size;
    block.extra = extra;
    block.memory = cachealloc::trace::MemoryType::pooled;
    return block;
}

State pieces(int count) {
    State state;
    for (int i = 0; i < count; ++i) {
        state.add_segment({.address = kRange + static_cast<std::uint64_t>(i) * kPiece,
                           .size = kPiece,
                           .large = true,
                           .expandable = true});
    }
    return state;
}

std::uint64_t sum(const Fragmentation& is) {
    return is.live + is.rounding + is.hard + is.soft + is.stream;
}

} // namespace

TEST_CASE("blocks of growable memory reach over the borders of its pieces") {
    State state = pieces(5);
    state.add_live(pooled(kRange + kMiB, 4 * kMiB + 700, 324)); // into the third piece
    Fragmentation is = fragmentation_of(state, 0);
    CHECK(is.reserved == 10 * kMiB);
    CHECK(is.live == 4 * kMiB + 700);
    CHECK(is.rounding == 324);
    CHECK(is.hard == 2 * kMiB - 1024);
    CHECK(is.soft == 4 * kMiB);
    CHECK(is.outside == 0);
    CHECK(sum(is) == is.reserved);

    SECTION("and a block that is not finished does too") {
        state.add_pending(pooled(kRange + 6 * kMiB - 512, kMiB));
        is = fragmentation_of(state, 0);
        CHECK(is.stream == kMiB);
        CHECK(is.soft == 3 * kMiB + 512);
        CHECK(sum(is) == is.reserved);
    }
    SECTION("but not over a gap") {
        state.remove_segment(kRange + kPiece);
        is = fragmentation_of(state, 0);
        CHECK(is.live == kMiB);
        CHECK(sum(is) == is.reserved);
    }
}

TEST_CASE("what lies in a second mapping takes up memory of the pieces") {
    State state = pieces(4);
    state.add_live(pooled(kRange, kMiB));
    state.add_segment({.address = 2 * kRange,
                       .size = 6 * kMiB,
                       .large = true,
                       .expandable = true,
                       .second = true});
    CHECK(fragmentation_of(state, 0).soft == 6 * kMiB);
    state.add_live(pooled(2 * kRange, 5 * kMiB));
    const Fragmentation is = fragmentation_of(state, 0);
    CHECK(is.reserved == 8 * kMiB);
    CHECK(is.segments == 4);
    CHECK(is.live == 6 * kMiB);
    CHECK(is.hard == kMiB);
    CHECK(is.soft == kMiB);
    CHECK(is.outside == 0);
    CHECK(sum(is) == is.reserved);
}
