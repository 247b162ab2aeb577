#include "shim/process_memory.h"

#include <catch2/catch.hpp>
#include <vector>

using cachealloc::shim::ProcessMemory;

TEST_CASE("ProcessMemory: a process is known by its number, or by being alone") {
    using Entries = std::vector<ProcessMemory::Entry>;
    constexpr unsigned long long kNotKnown = ~0ULL;
    CHECK(ProcessMemory::bytes_of(Entries{}, 7) == 0);
    CHECK(ProcessMemory::bytes_of(Entries{{7, 100, 0, 0}, {8, 200, 0, 0}}, 8) == 200);
    CHECK(ProcessMemory::bytes_of(Entries{{7, 100, 0, 0}, {8, 200, 0, 0}}, 9) == 0);
    CHECK(ProcessMemory::bytes_of(Entries{{7, 100, 0, 0}}, 9) == 100); // a container's numbers
    CHECK(ProcessMemory::bytes_of(Entries{{7, 100, 1, 0}, {7, 50, 2, 0}}, 7) == 150);
    CHECK(ProcessMemory::bytes_of(Entries{{7, kNotKnown, 0, 0}}, 7) == 0);
}

TEST_CASE("ProcessMemory: without its library nothing is known") {
    const ProcessMemory memory;
    CHECK(memory.device("0000:00:00.0") == nullptr);
    CHECK(memory.bytes(nullptr) == 0);
}
