#include "shim/host_reachable.h"

#include <catch2/catch.hpp>

using cachealloc::shim::HostReachable;

TEST_CASE("HostReachable: managed memory counts as long as it exists") {
    HostReachable memory;
    CHECK_FALSE(memory.any());
    memory.managed(0x1000);
    memory.managed(0x2000);
    CHECK(memory.freeing(0x1000));
    CHECK(memory.any());
    CHECK_FALSE(memory.freeing(0x1000));
    CHECK(memory.freeing(0x2000));
    CHECK_FALSE(memory.any());
}

TEST_CASE("HostReachable: what is not freed after all counts again") {
    HostReachable memory;
    memory.managed(0x1000);
    REQUIRE(memory.freeing(0x1000));
    memory.not_freed(0x1000);
    CHECK(memory.any());
    CHECK(memory.freeing(0x1000));
}

TEST_CASE(
    "HostReachable: pinned memory counts from its first device address on, a few bytes do not") {
    HostReachable memory;
    memory.mapped(0x1000, HostReachable::kLibraryBytes);
    CHECK_FALSE(memory.any());
    CHECK(memory.mapped_asked() == 1);
    CHECK(memory.mapped_largest() == HostReachable::kLibraryBytes);
    memory.mapped(0x3000, HostReachable::kLibraryBytes + 1);
    memory.mapped(0x3000, HostReachable::kLibraryBytes + 1); // asked again: still one
    memory.mapped(0x9000, 0);                                // of unknown size
    CHECK(memory.mapped_asked() == 4);
    CHECK(memory.mapped_largest() == HostReachable::kLibraryBytes + 1);
    CHECK(memory.freeing(0x3000));
    CHECK(memory.any());
    CHECK(memory.freeing(0x9000));
    CHECK_FALSE(memory.any());
}

TEST_CASE("HostReachable: small pinned allocations are remembered until they are freed") {
    HostReachable memory;
    memory.pinned(0x1000, 4);
    memory.pinned(0x2000, HostReachable::kLibraryBytes + 1);
    CHECK(memory.pinned_bytes(0x1000) == 4);
    CHECK(memory.pinned_bytes(0x1004) == 0);
    CHECK(memory.pinned_bytes(0x2000) == 0);
    memory.pinned(0x1000, 8); // the address came back unseen
    CHECK(memory.pinned_bytes(0x1000) == 8);
    CHECK_FALSE(memory.freeing(0x1000)); // it did not count
    CHECK(memory.pinned_bytes(0x1000) == 0);
    for (std::uintptr_t i = 1; i <= 2 * HostReachable::kMost; ++i)
        memory.pinned(i << 12, 4);
    CHECK(memory.pinned_bytes(1 << 12) == 4);
    CHECK(memory.pinned_bytes(std::uintptr_t{2 * HostReachable::kMost} << 12) == 0);
}

TEST_CASE("HostReachable: a pool of managed memory counts for ever") {
    HostReachable memory;
    memory.managed_for_ever();
    CHECK_FALSE(memory.freeing(0x1000));
    CHECK(memory.any());
}

TEST_CASE("HostReachable: what finds no room counts for ever") {
    HostReachable memory;
    for (std::uintptr_t i = 1; i <= HostReachable::kMost + 1; ++i)
        memory.managed(i << 12);
    for (std::uintptr_t i = 1; i <= HostReachable::kMost + 1; ++i)
        memory.freeing(i << 12);
    CHECK(memory.any());
}
