// A program linked with -lcuda: its first call finds the driver, with no dlsym before it.
#include "tests/integration/doors/process.h"

#include <catch2/catch.hpp>

extern "C" {
int cuGetProcAddress_v2(const char*, void**, int, std::uint64_t, int*);
// Programs refer weakly to what an older driver may lack; under the preload it is never null.
__attribute__((weak)) int cuStreamDestroy_v2(void*);
}

TEST_CASE("the linked look-up leads to the shim") {
    REQUIRE(doors::in_shim(reinterpret_cast<void*>(cuGetProcAddress_v2)));
    void* function = nullptr;
    CHECK(cuGetProcAddress_v2("cuMemAlloc", &function, 13000, 0, nullptr) == 0);
    CHECK(function == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    CHECK(doors::counter("lookup_substituted") == 1);
    CHECK(doors::counter("dlsym_substituted") == 0);
}

TEST_CASE("a linked function that the driver lacks says so") {
    CHECK(cuStreamDestroy_v2(nullptr) == 3);
}

TEST_CASE("off forwards the linked look-up") {
    void* function = nullptr;
    CHECK(cuGetProcAddress_v2("cuMemAlloc", &function, 13000, 0, nullptr) == 0);
    CHECK(doors::file_of(function) == "libcuda.so.1");
    CHECK(doors::counter("lookup_substituted") == 0);
}
