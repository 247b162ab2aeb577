// Which function each door hands out. Runs under the preload with the fake driver in reach; each
// case needs a process of its own, because a driver is taken over once.
#include "tests/integration/doors/process.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

using namespace doors;

namespace {

void* open_driver() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(driver != nullptr);
    return driver;
}

constexpr std::uint64_t kPerThread = 2;

} // namespace

TEST_CASE("dlsym replaces exactly the intercepted names") {
    void* driver = open_driver();
    CHECK(in_shim(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(in_shim(dlsym(driver, "cuMemFreeAsync_ptsz")));
    CHECK(counter("dlsym_substituted") == 2);

    // An old version of an intercepted name, a name that is not intercepted, one that no table has.
    for (const char* name : {"cuMemAlloc", "cuDeviceGetCount", "cuFutureCall"})
        CHECK(file_of(dlsym(driver, name)) == "libcuda.so.1");
    CHECK(counter("dlsym_substituted") == 2);
}

TEST_CASE("what the driver lacks stays missing") {
    void* driver = open_driver();
    CHECK(in_shim(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(dlerror() == nullptr); // the shim's own failed look-ups leave no trace
    CHECK(dlsym(driver, "cuStreamDestroy_v2") == nullptr);
    const char* error = dlerror();
    REQUIRE(error != nullptr);
    CHECK(std::string(error).find("undefined symbol: cuStreamDestroy_v2") != std::string::npos);
}

TEST_CASE("dlvsym replaces like dlsym") {
    void* driver = open_driver();
    void* versioned = dlvsym(driver, "cuMemAlloc_v2", "FAKE_DRIVER_1");
    CHECK(in_shim(versioned));
    CHECK(versioned == dlsym(driver, "cuMemAlloc_v2"));
    CHECK(file_of(dlvsym(driver, "cuDeviceGetCount", "FAKE_DRIVER_1")) == "libcuda.so.1");
    CHECK(dlvsym(driver, "cuMemAlloc_v2", "NO_SUCH_VERSION") == nullptr);
    CHECK(counter("dlsym_substituted") == 2);
}

TEST_CASE("cuGetProcAddress with four arguments") {
    const auto look_up = reinterpret_cast<GetProcAddress>(dlsym(open_driver(), "cuGetProcAddress"));
    REQUIRE(in_shim(reinterpret_cast<void*>(look_up)));
    void* function = nullptr;
    CHECK(look_up("cuMemAlloc", &function, 3020, 0) == 0);
    CHECK(in_shim(function));
    CHECK(look_up("cuMemAlloc", &function, 2000, 0) == 0);
    CHECK(file_of(function) == "libcuda.so.1");
    CHECK(counter("lookup_substituted") == 1);
}

TEST_CASE("cuGetProcAddress_v2 replaces by pointer") {
    const auto look_up =
        reinterpret_cast<GetProcAddress2>(dlsym(open_driver(), "cuGetProcAddress_v2"));
    REQUIRE(in_shim(reinterpret_cast<void*>(look_up)));
    void* function = nullptr;
    int status = 77;

    CHECK(look_up("cuMemAlloc", &function, 3020, 0, &status) == 0);
    CHECK(in_shim(function));
    CHECK(status == 0);

    void* plain = nullptr;
    void* per_thread = nullptr;
    CHECK(look_up("cuMemFreeAsync", &plain, 11020, 0, nullptr) == 0);
    CHECK(look_up("cuMemFreeAsync", &per_thread, 11020, kPerThread, nullptr) == 0);
    CHECK(plain == dlsym(RTLD_DEFAULT, "cuMemFreeAsync"));
    CHECK(per_thread == dlsym(RTLD_DEFAULT, "cuMemFreeAsync_ptsz"));
    CHECK(counter("lookup_substituted") == 3);

    // The answers that are the driver's own.
    CHECK(look_up("cuMemAlloc", &function, 2000, 0, &status) == 0);
    CHECK(file_of(function) == "libcuda.so.1");
    CHECK(look_up("cuDeviceGetCount", &function, 4000, 0, &status) == 0);
    CHECK(file_of(function) == "libcuda.so.1");
    CHECK(look_up("", &function, 0, 0, nullptr) != 0);
    CHECK(function == nullptr);
    CHECK(look_up("cuNoSuchThing", &function, 13000, 0, &status) != 0);
    CHECK(function == nullptr);
    CHECK(status == 1);
    CHECK(counter("lookup_substituted") == 3);
    CHECK(counter("unknown_names") == 0);

    // A function that no table has: a stub that jumps on.
    CHECK(look_up("cuFutureCall", &function, 13000, 0, &status) == 0);
    CHECK(in_shim(function));
    CHECK(counter("unknown_names") == 1);
    const auto future = reinterpret_cast<int (*)()>(function);
    const auto real_future = reinterpret_cast<int (*)()>(dlsym(open_driver(), "cuFutureCall"));
    CHECK(future() == real_future());
    CHECK(future() == real_future());
    CHECK(look_up("cuFutureCall", &function, 13000, 0, &status) == 0);
    CHECK(reinterpret_cast<int (*)()>(function) == future);
}

TEST_CASE("the look-up of the look-up stays in the chain") {
    const auto first =
        reinterpret_cast<GetProcAddress2>(dlsym(open_driver(), "cuGetProcAddress_v2"));
    void* second = nullptr;
    CHECK(first("cuGetProcAddress", &second, 12000, 0, nullptr) == 0);
    CHECK(second == reinterpret_cast<void*>(first));
    void* old_shape = nullptr;
    CHECK(first("cuGetProcAddress", &old_shape, 11030, 0, nullptr) == 0);
    CHECK(in_shim(old_shape));
    CHECK(old_shape != second);
    void* function = nullptr;
    CHECK(reinterpret_cast<GetProcAddress>(old_shape)("cuMemFree", &function, 3020, 0) == 0);
    CHECK(in_shim(function));
    CHECK(reinterpret_cast<GetProcAddress2>(second)("cuMemFree", &function, 3020, 0, nullptr) == 0);
    CHECK(in_shim(function));
}

TEST_CASE("one name has one address through every door") {
    void* driver = open_driver();
    void* by_dlsym = dlsym(driver, "cuMemAlloc_v2");
    void* by_look_up = nullptr;
    const auto look_up = reinterpret_cast<GetProcAddress2>(dlsym(driver, "cuGetProcAddress_v2"));
    CHECK(look_up("cuMemAlloc", &by_look_up, 13000, 0, nullptr) == 0);
    CHECK(by_dlsym == by_look_up);
    CHECK(by_dlsym == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    CHECK(by_dlsym == dlsym(dlopen(nullptr, RTLD_LAZY), "cuMemAlloc_v2"));
}

TEST_CASE("a second driver is left alone") {
    void* driver = open_driver();
    CHECK(in_shim(dlsym(driver, "cuMemAlloc_v2")));
    void* other = dlopen(OTHER_DRIVER, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(other != nullptr);
    const auto allocate = reinterpret_cast<NamedFunction>(dlsym(other, "cuMemAlloc_v2"));
    CHECK(file_of(reinterpret_cast<void*>(allocate)) == "libcuda_other.so");
    CHECK(allocate() == 2001);
    CHECK(counter("foreign_lookups") == 1);
    // Its look-up is its own too, so everything behind it stays native.
    CHECK(file_of(dlsym(other, "cuGetProcAddress_v2")) == "libcuda_other.so");
    CHECK(in_shim(dlsym(driver, "cuMemFree_v2")));
}

TEST_CASE("a driver closed and opened again is the same driver") {
    void* driver = open_driver();
    CHECK(in_shim(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(dlclose(driver) == 0);
    CHECK(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr);
    driver = open_driver();
    CHECK(in_shim(dlsym(driver, "cuMemAlloc_v2")));
    CHECK(counter("foreign_lookups") == 0);
}

TEST_CASE("threads that race through the door get one answer") {
    void* driver = open_driver();
    constexpr int kThreads = 8;
    std::atomic<int> waiting{kThreads};
    std::vector<void*> answers(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            waiting.fetch_sub(1);
            while (waiting.load() != 0) {
            }
            answers[static_cast<std::size_t>(i)] = dlsym(driver, "cuMemAlloc_v2");
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (void* answer : answers)
        CHECK(answer == answers[0]);
    CHECK(in_shim(answers[0]));
    CHECK(counter("dlsym_substituted") == kThreads);
}

TEST_CASE("without any driver or runtime the exported names say so") {
    const auto allocate = reinterpret_cast<int (*)(std::uint64_t*, std::size_t)>(
        dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    const auto runtime_allocate =
        reinterpret_cast<int (*)(void**, std::size_t)>(dlsym(RTLD_DEFAULT, "cudaMalloc"));
    REQUIRE(in_shim(reinterpret_cast<void*>(allocate)));
    REQUIRE(in_shim(reinterpret_cast<void*>(runtime_allocate)));
    std::uint64_t address = 5;
    void* pointer = &address;
    CHECK(allocate(&address, 1) == 3);          // CUDA_ERROR_NOT_INITIALIZED
    CHECK(runtime_allocate(&pointer, 1) == 35); // cudaErrorInsufficientDriver
    CHECK(address == 5);
    CHECK(pointer == &address);
}

TEST_CASE("off replaces nothing") {
    void* driver = open_driver();
    CHECK(file_of(dlsym(driver, "cuMemAlloc_v2")) == "libcuda.so.1");
    const auto look_up = reinterpret_cast<GetProcAddress2>(dlsym(driver, "cuGetProcAddress_v2"));
    CHECK(file_of(reinterpret_cast<void*>(look_up)) == "libcuda.so.1");
    void* function = nullptr;
    CHECK(look_up("cuMemAlloc", &function, 13000, 0, nullptr) == 0);
    CHECK(file_of(function) == "libcuda.so.1");
    // Linked symbols bind to the preload whatever it does; they forward.
    const auto linked = reinterpret_cast<NamedFunction>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    REQUIRE(in_shim(reinterpret_cast<void*>(linked)));
    CHECK(linked() == 1001);
    CHECK(linked() == 1001);
    CHECK(counter("dlsym_substituted") == 0);
    CHECK(counter("lookup_substituted") == 0);
}
