#include "shim/stream_use.h"

#include <catch2/catch.hpp>

using namespace cachealloc::shim;

namespace {

CUstream stream(std::uintptr_t handle) {
    return reinterpret_cast<CUstream>(handle);
}

} // namespace

TEST_CASE("StreamUse: several streams count while submissions change between them") {
    StreamUse use;
    int looks = 0;
    const auto several = [&] { return use.several([&] { ++looks; }); };
    CHECK_FALSE(several());
    for (int i = 0; i < 3; ++i)
        use.submitted(stream(0));
    CHECK_FALSE(several());
    CHECK(use.submitted(stream(0x1000)));
    CHECK(several());
    CHECK(looks == 0); // nobody need look for a while
    for (std::uint32_t i = 0; i < StreamUse::kLately; ++i) {
        CHECK_FALSE(use.submitted(stream(0x1000)));
        CHECK(several()); // a little later still
    }
    CHECK(looks == 1);
    CHECK_FALSE(several());
    use.submitted(stream(0));
    CHECK(several());
}
