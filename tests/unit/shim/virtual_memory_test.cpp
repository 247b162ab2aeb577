#include "shim/virtual_memory.h"

#include <catch2/catch.hpp>

using cachealloc::shim::VirtualMemory;

TEST_CASE("VirtualMemory: a handle that was never mapped ends with its last reference") {
    VirtualMemory memory;
    memory.created(7);
    memory.retained(7);
    CHECK_FALSE(memory.released(7));
    CHECK(memory.released(7));
    CHECK_FALSE(memory.released(7)); // nobody's by now
}

TEST_CASE("VirtualMemory: memory whose handle was given back ends with its last mapping") {
    VirtualMemory memory;
    memory.created(7);
    memory.mapped(0x1000, 0x1000, 7);
    memory.mapped(0x9000, 0x1000, 7);
    CHECK_FALSE(memory.released(7));
    CHECK(memory.unmapped(0x1000, 0x1000).handles.empty());
    const VirtualMemory::Ended ended = memory.unmapped(0x9000, 0x1000);
    REQUIRE(ended.handles.size() == 1);
    CHECK(ended.handles[0] == 7);
}

TEST_CASE("VirtualMemory: memory that was unmapped first ends with its handle") {
    VirtualMemory memory;
    memory.created(7);
    memory.mapped(0x1000, 0x1000, 7);
    CHECK(memory.unmapped(0x1000, 0x1000).handles.empty());
    CHECK(memory.released(7));
}

TEST_CASE("VirtualMemory: one call ends all mappings in its range, and no others") {
    VirtualMemory memory;
    memory.created(7);
    memory.mapped(0x1000, 0x1000, 7);
    memory.mapped(0x2000, 0x1000, 8); // another process's: not known here
    memory.mapped(0x3000, 0x1000, 7);
    const VirtualMemory::Ended ended = memory.unmapped(0x1000, 0x2000);
    REQUIRE(ended.mappings.size() == 2);
    CHECK(ended.mappings[0].address == 0x1000);
    CHECK(ended.mappings[1].address == 0x2000);
    CHECK(memory.unmapped(0x1000, 0x2000).mappings.empty());
    CHECK(memory.unmapped(0x3000, 0x1000).mappings.size() == 1);
}

TEST_CASE("VirtualMemory: what the driver refused is as it was") {
    VirtualMemory memory;
    memory.created(7);
    memory.mapped(0x1000, 0x1000, 7);
    CHECK_FALSE(memory.released(7));
    const VirtualMemory::Ended ended = memory.unmapped(0x1000, 0x1000);
    REQUIRE(ended.handles.size() == 1);
    memory.restore(ended);
    CHECK(memory.unmapped(0x1000, 0x1000).handles.size() == 1);
    CHECK_FALSE(memory.released(7));
}
