#include "core/pool/stitches.h"

#include <catch2/catch.hpp>

using namespace cachealloc;

namespace {

Stitch* add(Stitches& stitches, DeviceAddress base, std::uint64_t bytes) {
    Stitch* const stitch = stitches.empty_slot();
    REQUIRE(stitch != nullptr);
    stitch->base = base;
    stitch->size = bytes;
    stitch->use = Stitch::Use::idle;
    stitches.touch(*stitch);
    return stitch;
}

bool any(const Stitch&) {
    return true;
}

} // namespace

TEST_CASE("Stitches: the smallest that fits, the one used longest ago, the one at an address") {
    Stitches stitches;
    CHECK(stitches.smallest(1, any) == nullptr);
    CHECK(stitches.oldest(any) == nullptr);
    Stitch* const large = add(stitches, 100 * kGranule, 8 * kGranule);
    Stitch* const middle = add(stitches, 200 * kGranule, 4 * kGranule);
    Stitch* const small = add(stitches, 300 * kGranule, 2 * kGranule);
    CHECK(stitches.smallest(3 * kGranule, any) == middle);
    CHECK(stitches.smallest(3 * kGranule, [&](const Stitch& s) { return &s != middle; }) == large);
    CHECK(stitches.smallest(9 * kGranule, any) == nullptr);
    CHECK(stitches.oldest(any) == large);
    stitches.touch(*large);
    CHECK(stitches.oldest(any) == middle);
    middle->use = Stitch::Use::live; // not to be had
    CHECK(stitches.oldest(any) == small);
    CHECK(stitches.smallest(3 * kGranule, any) == large);
    CHECK(stitches.at(300 * kGranule) == small);
    Stitches::drop(*small);
    CHECK(stitches.at(300 * kGranule) == nullptr);
    CHECK(stitches.empty_slot() == small);
}

TEST_CASE("Stitches: no more than there are slots") {
    Stitches stitches;
    for (std::uint32_t i = 0; i < Stitches::kSlots; ++i)
        add(stitches, (i + 1) * kGranule, kGranule);
    CHECK(stitches.empty_slot() == nullptr);
    std::uint32_t seen = 0;
    stitches.each([&](Stitch&) { ++seen; });
    CHECK(seen == Stitches::kSlots);
}
