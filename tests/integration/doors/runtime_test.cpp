// The exported runtime names reach the caller's own libcudart.
#include "tests/integration/doors/process.h"

#include <catch2/catch.hpp>

#include <string>

using namespace doors;

namespace {

struct User {
    explicit User(const char* path, int mode = RTLD_LOCAL) : handle(dlopen(path, RTLD_NOW | mode)) {
        INFO(path);
        REQUIRE(handle != nullptr);
        // Bound to the preload, else the test would show nothing.
        const auto bound_to = reinterpret_cast<const char* (*)()>(dlsym(handle, "user_bound_to"));
        REQUIRE(std::string(bound_to()).find("libcachealloc") != std::string::npos);
    }
    int call(const char* name) const {
        return reinterpret_cast<NamedFunction>(dlsym(handle, name))();
    }
    void* handle;
};

} // namespace

TEST_CASE("two runtimes in one process stay apart") {
    const User thirteen(USER_OF_13);
    const User twelve(USER_OF_12);
    for (int round = 0; round < 2; ++round) {
        CHECK(thirteen.call("user_allocate") == 1301);
        CHECK(twelve.call("user_allocate") == 1201);
        CHECK(thirteen.call("user_free") == 1302);
        CHECK(twelve.call("user_free") == 1202);
        CHECK(thirteen.call("user_allocate_async") == 1303);
        CHECK(twelve.call("user_free_async") == 1204);
    }
}

TEST_CASE("a library loaded where another one was has its own runtime") {
    // The dynamic linker reuses addresses and bookkeeping, so in turns like these the two share
    // them.
    // Both runtimes stay, else they would take turns in one place as well.
    REQUIRE(dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL) != nullptr);
    REQUIRE(dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL) != nullptr);
    for (int round = 0; round < 20; ++round) {
        const bool odd = round % 2 != 0;
        const User user(odd ? USER_OF_12 : USER_OF_13);
        CHECK(user.call("user_allocate") == (odd ? 1201 : 1301));
        REQUIRE(dlclose(user.handle) == 0);
    }
}

TEST_CASE("dlsym on a runtime is left alone") {
    void* runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(runtime != nullptr);
    CHECK(file_of(dlsym(runtime, "cudaMalloc")) == "libcudart.so.13");
}
