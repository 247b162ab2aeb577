#include "shim/peer_access.h"

#include <catch2/catch.hpp>

using namespace cachealloc::shim;

namespace {

CUcontext context(std::uintptr_t number) {
    return reinterpret_cast<CUcontext>(number);
}

} // namespace

TEST_CASE("PeerAccess: each device once, until its last context no longer reaches") {
    PeerAccess peers;
    peers.enabled(context(16), 1, context(99));
    peers.enabled(context(32), 1, context(99));
    peers.enabled(context(48), 2, context(99));
    peers.enabled(context(48), 2, context(16));
    CUdevice devices[4] = {};
    REQUIRE(peers.reaching(context(99), devices, 4) == 2);
    CHECK(devices[0] == 1);
    CHECK(devices[1] == 2);
    CHECK(peers.reaching(context(99), devices, 1) == 1);
    CHECK_FALSE(peers.disabled(context(16), 1, context(99)));
    CHECK(peers.disabled(context(32), 1, context(99)));
    CHECK(peers.reaching(context(99), devices, 4) == 1);
}

TEST_CASE("PeerAccess: a context that ends takes both sides with it") {
    PeerAccess peers;
    peers.enabled(context(16), 1, context(99));
    peers.enabled(context(99), 0, context(16));
    peers.ended(context(99));
    CUdevice devices[4] = {};
    CHECK(peers.reaching(context(99), devices, 4) == 0);
    CHECK(peers.reaching(context(16), devices, 4) == 0);
}
