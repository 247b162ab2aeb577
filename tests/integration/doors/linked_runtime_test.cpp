// A program linked with a shared libcudart: for the main program "its own" is what follows the
// shim.
#include "tests/integration/doors/process.h"

#include <catch2/catch.hpp>

extern "C" {
int cudaMalloc(void** pointer, std::size_t bytes);
int cudaFree(void* pointer);
}

TEST_CASE("the linked runtime is reached through the shim") {
    REQUIRE(doors::in_shim(reinterpret_cast<void*>(cudaMalloc)));
    void* pointer = nullptr;
    CHECK(cudaMalloc(&pointer, 1) == 1301);
    CHECK(cudaFree(pointer) == 1302);
}
