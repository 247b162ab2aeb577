// The life of contexts: what was allocated in them, before and after their end.
#include "tests/contract/contract.h"

#include <set>
#include <thread>

using namespace contract;

namespace {

CUcontext new_context() {
    CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
#else
    REQUIRE(cuCtxCreate(&context, 0, 0) == CUDA_SUCCESS);
#endif
    return context;
}

CUcontext current() {
    CUcontext context = nullptr;
    REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    return context;
}

// Allocates, uses and frees a little in the current context. Frees it twice, unless another thread
// may have got the address by then.
void use_memory(std::uint32_t tag, bool twice = true) {
    for (const std::size_t bytes : {std::size_t{5000}, 700 * kKiB, 3 * kMiB}) {
        void* const memory = pointer(driver_allocate(bytes));
        fill(memory, bytes, tag);
        CHECK(holds(memory, bytes, tag));
        CHECK(cuMemFree(address(memory)) == CUDA_SUCCESS);
        if (twice) CHECK(cuMemFree(address(memory)) == CUDA_ERROR_INVALID_VALUE);
    }
}

} // namespace

ALONE_TEST_CASE("contexts that end with live and with freed memory", "[contexts]") {
    Device device;
    void* const kept = allocate(4096);
    fill(kept, 4096, 1);
    std::size_t before = 0;
    std::set<CUcontext> handles;
    constexpr int kRounds = 8;
    for (int round = 0; round < kRounds; ++round) {
        const CUcontext context = new_context();
        handles.insert(context);
        std::vector<CUdeviceptr> all;
        for (std::uint32_t i = 0; i < 8; ++i) {
            all.push_back(driver_allocate(i % 2 == 0 ? 30 * kMiB : 20 * kKiB));
            fill(pointer(all.back()), 4096, i);
        }
        for (std::size_t i = 0; i < 4; ++i)
            CHECK(cuMemFree(all[i]) == CUDA_SUCCESS);
        for (std::uint32_t i = 4; i < 8; ++i)
            CHECK(holds(pointer(all[i]), 4096, i));
        CHECK(cuCtxDestroy(context) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(device.context()) == CUDA_SUCCESS);
        // Live or freed: neither is anything now.
        for (const CUdeviceptr memory : all) {
            CHECK(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
            CUdeviceptr base = 0;
            CHECK(cuMemGetAddressRange(&base, nullptr, memory) == CUDA_ERROR_NOT_FOUND);
        }
        CHECK_FAILS(cudaFree(pointer(all[7])), cudaErrorInvalidValue);
        CHECK(holds(kept, 4096, 1));
        if (round == 0) before = free_memory();
        CHECK(free_memory() + kSlackOfFree >= before);
        use_memory(static_cast<std::uint32_t>(round));
    }
    measured("distinct handles of contexts made one after the other",
             static_cast<long long>(handles.size()));
    CHECK(cudaFree(kept) == cudaSuccess);
}

ALONE_TEST_CASE("a context that ends with work on its way", "[contexts]") {
    Device device;
    for (int round = 0; round < 3; ++round) {
        const CUcontext context = new_context();
        const CUdeviceptr from = driver_allocate(64 * kKiB);
        const CUdeviceptr to = driver_allocate(64 * kKiB);
        auto* const kernels = new Kernels; // ends with the context
        CUstream stream = nullptr;
        REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        kernels->late_copy(pointer(to), pointer(from), 64 * kKiB, 20, stream);
        REQUIRE(cuMemFree(from) == CUDA_SUCCESS);
        kernels->late_copy(pointer(to), pointer(to), 64 * kKiB, 20, stream);
        CUresult destroyed = CUDA_ERROR_UNKNOWN;
        std::thread([&] { destroyed = cuCtxDestroy(context); }).join();
        CHECK(destroyed == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(device.context()) == CUDA_SUCCESS);
        use_memory(static_cast<std::uint32_t>(round));
    }
}

ALONE_TEST_CASE("two contexts of one device at once", "[contexts]") {
    Device device;
    const CUcontext first = device.context();
    const CUcontext second = new_context();
    std::vector<void*> in_first;
    std::vector<void*> in_second;
    for (std::uint32_t i = 0; i < 20; ++i) {
        REQUIRE(cuCtxSetCurrent(first) == CUDA_SUCCESS);
        in_first.push_back(pointer(driver_allocate(20000)));
        fill(in_first.back(), 20000, i);
        REQUIRE(cuCtxSetCurrent(second) == CUDA_SUCCESS);
        in_second.push_back(pointer(driver_allocate(20000)));
        fill(in_second.back(), 20000, 100 + i);
    }
    CUcontext owner = nullptr;
    CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address(in_first[3])) ==
          CUDA_SUCCESS);
    CHECK(owner == first);
    CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address(in_second[3])) ==
          CUDA_SUCCESS);
    CHECK(owner == second);
    // Freed while the other context is current.
    CHECK(current() == second);
    for (std::size_t i = 0; i < 10; ++i) {
        CHECK(cuMemFree(address(in_first[i])) == CUDA_SUCCESS);
        CHECK(cuMemFree(address(in_first[i])) == CUDA_ERROR_INVALID_VALUE);
        CHECK(current() == second);
    }
    use_memory(200);
    REQUIRE(cuCtxSetCurrent(first) == CUDA_SUCCESS);
    for (std::uint32_t i = 10; i < 20; ++i) {
        CHECK(holds(in_first[i], 20000, i));
        CHECK(cuMemFree(address(in_first[i])) == CUDA_SUCCESS);
    }
    // The end of one leaves the other alone.
    CHECK(cudaDeviceReset() == cudaSuccess);
    REQUIRE(cuCtxSetCurrent(second) == CUDA_SUCCESS);
    for (std::uint32_t i = 0; i < 20; ++i) {
        CHECK(holds(in_second[i], 20000, 100 + i));
        CHECK(cuMemFree(address(in_second[i])) == CUDA_SUCCESS);
    }
    use_memory(201);
    CHECK(cuCtxDestroy(second) == CUDA_SUCCESS);
}

// What one context has freed is free for the other, which may want all of it.
ALONE_TEST_CASE("memory freed in one context is free for another", "[contexts][info]") {
    Device device;
    const CUcontext second = new_context();
    REQUIRE(cuCtxSetCurrent(device.context()) == CUDA_SUCCESS);
    const std::size_t most = free_memory() / 10 * 8;
    for (int round = 0; round < 3; ++round) {
        for (const CUcontext context : {device.context(), second}) {
            REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
            CHECK(free_memory() >= most);
            CUdeviceptr memory = 0;
            CHECK(cuMemAlloc(&memory, most) == CUDA_SUCCESS);
            CHECK(cuMemFree(memory) == CUDA_SUCCESS);
        }
    }
    CHECK(cuCtxDestroy(second) == CUDA_SUCCESS);
}

// Through the driver alone: the runtime would retain the primary context too.
ALONE_TEST_CASE("a primary context retained twice and released", "[contexts]") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    CUcontext context = nullptr;
    CUcontext again = nullptr;
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS);
    REQUIRE(context == again);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    void* const memory = pointer(driver_allocate(70000));
    void* const other = pointer(driver_allocate(70000));
    void* const freed = pointer(driver_allocate(70000));
    fill(memory, 70000, 1);
    fill(other, 70000, 2);
    REQUIRE(cuMemFree(address(freed)) == CUDA_SUCCESS);

    REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    unsigned flags = 0;
    int active = 0;
    REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 1);
    CHECK(holds(memory, 70000, 1));
    CHECK(holds(other, 70000, 2));
    CHECK(cuMemFree(address(freed)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(address(memory)) == CUDA_SUCCESS);
    use_memory(3);
    CHECK(holds(other, 70000, 2));

    REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
    CUdeviceptr none = 0;
    CHECK(cuMemAlloc(&none, 4096) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuMemFree(address(other)) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    std::size_t free_bytes = 0;
    CHECK(cuMemGetInfo(&free_bytes, nullptr) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);

    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK(cuMemFree(address(other)) == CUDA_ERROR_INVALID_VALUE);
    use_memory(4);
    CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
}

ALONE_TEST_CASE("the device is reset in the middle", "[contexts]") {
    for (std::uint32_t round = 0; round < 3; ++round) {
        Device device;
        std::vector<void*> all;
        for (std::uint32_t i = 0; i < 30; ++i) {
            all.push_back(allocate(i % 3 == 0 ? 5 * kMiB : 9000));
            fill(all.back(), 4096, i);
        }
        for (std::size_t i = 0; i < all.size(); i += 2)
            CHECK(cudaFree(all[i]) == cudaSuccess);
        for (std::uint32_t i = 1; i < all.size(); i += 2)
            CHECK(holds(all[i], 4096, i));
        CHECK(cudaDeviceReset() == cudaSuccess);
        CHECK_FAILS(cudaFree(all[0]), cudaErrorInvalidValue);
        CHECK_FAILS(cudaFree(all[1]), cudaErrorInvalidValue);
        CHECK_FAILS(cudaFree(all[1]), cudaErrorInvalidValue);
        void* const memory = allocate(9000);
        fill(memory, 9000, round);
        CHECK(holds(memory, 9000, round));
        CHECK(cudaFree(memory) == cudaSuccess);
        use_memory(round);
    }
}

// Context ends beside threads that allocate in another one.
ALONE_TEST_CASE("contexts end beside threads at work", "[contexts][threads]") {
    Device device;
    std::vector<std::thread> threads;
    std::vector<int> wrong(3, 0);
    for (std::size_t me = 0; me < wrong.size(); ++me) {
        threads.emplace_back([&, me] {
            cuCtxSetCurrent(device.context());
            CUdeviceptr kept[8] = {};
            for (int i = 0; i < 400; ++i) {
                CUdeviceptr& memory = kept[i % 8];
                if (memory != 0) wrong[me] += cuMemFree(memory) != CUDA_SUCCESS;
                wrong[me] += cuMemAlloc(&memory, 1000u + 977u * static_cast<unsigned>(i % 20)) !=
                             CUDA_SUCCESS;
            }
            for (const CUdeviceptr memory : kept)
                wrong[me] += cuMemFree(memory) != CUDA_SUCCESS;
        });
    }
    for (std::uint32_t round = 0; round < 6; ++round) {
        const CUcontext context = new_context();
        use_memory(round, false);
        driver_allocate(4 * kMiB);
        CHECK(cuCtxDestroy(context) == CUDA_SUCCESS);
    }
    for (std::thread& thread : threads)
        thread.join();
    for (const int count : wrong)
        CHECK(count == 0);
}
