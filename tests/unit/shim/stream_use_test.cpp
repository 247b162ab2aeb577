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
    CHECK_FALSE(use.several());
    for (int i = 0; i < 3; ++i)
        use.submitted(stream(0));
    CHECK_FALSE(use.several());
    use.submitted(stream(0x1000));
    CHECK(use.several());
    for (std::uint32_t i = 0; i < StreamUse::kLately; ++i) {
        use.submitted(stream(0x1000));
        CHECK(use.several()); // a little later still
    }
    CHECK_FALSE(use.several());
    use.submitted(stream(0));
    CHECK(use.several());
}
