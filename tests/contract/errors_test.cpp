// Errors are native: codes, last error, and that a failed call changes nothing.
#include "tests/contract/contract.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

using namespace contract;

TEST_CASE("allocations of nothing and frees of null", "[errors]") {
    Device device;
    int marker = 0;
    void* memory = &marker;
    CHECK(cudaMalloc(&memory, 0) == cudaSuccess);
    CHECK(memory == nullptr);
    CUdeviceptr driver_memory = 7;
    CHECK(cuMemAlloc(&driver_memory, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cudaGetLastError() == cudaSuccess); // the driver API has no last error
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(cuMemFree(0) == CUDA_SUCCESS);
    CHECK_FAILS(cudaMalloc(nullptr, 64), cudaErrorInvalidValue);
    CHECK(cuMemAlloc(nullptr, 64) == CUDA_ERROR_INVALID_VALUE);
}

// Enough blocks that some begin what an allocator gets from the driver and others lie inside it.
TEST_CASE("a block freed twice, its neighbours intact", "[errors]") {
    struct Blocks {
        std::size_t count;
        std::size_t bytes;
    };
    const Blocks blocks = GENERATE(Blocks{600, 4 * kKiB}, Blocks{24, 512 * kKiB},
                                   Blocks{6, 3 * kMiB}, Blocks{4, 20 * kMiB});
    const bool through_driver = GENERATE(false, true);
    CAPTURE(blocks.count, blocks.bytes, through_driver);
    Device device;
    const std::size_t checked = std::min(blocks.bytes, 64 * kKiB);
    std::vector<void*> all;
    for (std::size_t i = 0; i < blocks.count; ++i) {
        all.push_back(allocate(blocks.bytes));
        fill(all.back(), checked, static_cast<std::uint32_t>(i));
    }
    for (std::size_t i = 0; i < all.size(); i += 2) {
        if (through_driver) {
            REQUIRE(cuMemFree(address(all[i])) == CUDA_SUCCESS);
            REQUIRE(cuMemFree(address(all[i])) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(cuMemFree(address(all[i])) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(cudaGetLastError() == cudaSuccess);
        } else {
            REQUIRE(cudaFree(all[i]) == cudaSuccess);
            REQUIRE(cudaFree(all[i]) == cudaErrorInvalidValue);
            CHECK_FAILS(cudaFree(all[i]), cudaErrorInvalidValue);
        }
    }
    for (std::size_t i = 1; i < all.size(); i += 2)
        REQUIRE(holds(all[i], checked, static_cast<std::uint32_t>(i)));
    for (std::size_t i = 0; i < all.size(); i += 2) {
        all[i] = allocate(blocks.bytes);
        fill(all[i], checked, static_cast<std::uint32_t>(1000 + i));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto tag = static_cast<std::uint32_t>(i % 2 == 0 ? 1000 + i : i);
        REQUIRE(holds(all[i], checked, tag));
        REQUIRE(cudaFree(all[i]) == cudaSuccess);
        REQUIRE(cudaFree(all[i]) == cudaErrorInvalidValue);
        cudaGetLastError();
    }
}

TEST_CASE("frees of what is no allocation", "[errors]") {
    Device device;
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 4096, 3 * kMiB);
    void* const memory = allocate(bytes);
    void* const neighbour = allocate(bytes);
    fill(memory, bytes, 1);
    fill(neighbour, bytes, 2);
    for (const std::size_t offset :
         {std::size_t{1}, std::size_t{256}, std::size_t{512}, bytes / 2, bytes - 1}) {
        CAPTURE(offset);
        CHECK_FAILS(cudaFree(plus(memory, offset)), cudaErrorInvalidValue);
        CHECK(cuMemFree(address(memory) + offset) == CUDA_ERROR_INVALID_VALUE);
    }
    int on_stack = 0;
    CHECK_FAILS(cudaFree(&on_stack), cudaErrorInvalidValue);
    const auto on_heap = std::make_unique<char[]>(4096);
    CHECK_FAILS(cudaFree(on_heap.get()), cudaErrorInvalidValue);
    CHECK(cuMemFree(address(on_heap.get())) == CUDA_ERROR_INVALID_VALUE);
    CHECK_FAILS(cudaFree(pointer(0x100)), cudaErrorInvalidValue);
    const cudaError_t as_host = cudaFreeHost(memory);
    measured("cudaFreeHost of device memory", as_host);
    CHECK(as_host != cudaSuccess);
    cudaGetLastError();
    CHECK(holds(memory, bytes, 1));
    CHECK(holds(neighbour, bytes, 2));
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(cudaFree(neighbour) == cudaSuccess);
}

TEST_CASE("sizes that no device has", "[errors]") {
    Device device;
    void* memory = nullptr;
    CHECK_FAILS(cudaMalloc(&memory, std::size_t{1} << 50), cudaErrorMemoryAllocation);
    CUdeviceptr driver_memory = 0;
    CHECK(cuMemAlloc(&driver_memory, std::size_t{1} << 50) == CUDA_ERROR_OUT_OF_MEMORY);
    std::size_t total = 0;
    REQUIRE(cudaMemGetInfo(nullptr, &total) == cudaSuccess);
    CHECK_FAILS(cudaMalloc(&memory, total + 1), cudaErrorMemoryAllocation);
    for (const std::size_t below : {std::size_t{0}, std::size_t{1}, std::size_t{510},
                                    std::size_t{511}, std::size_t{512}, 2 * kMiB - 1, 2 * kMiB}) {
        CAPTURE(below);
        const std::size_t bytes = SIZE_MAX - below;
        const cudaError_t code = cudaMalloc(&memory, bytes);
        CHECK(code != cudaSuccess);
        CHECK(cudaGetLastError() == code);
        CHECK(cudaGetLastError() == cudaSuccess);
        if (below == 0) measured("cudaMalloc(SIZE_MAX)", code);
        const CUresult driver_code = cuMemAlloc(&driver_memory, bytes);
        CHECK(driver_code != CUDA_SUCCESS);
        if (below == 0) measured("cuMemAlloc(SIZE_MAX)", driver_code);
    }
    memory = allocate(4096); // nothing of that sticks
    fill(memory, 4096, 3);
    CHECK(holds(memory, 4096, 3));
    CHECK(cudaFree(memory) == cudaSuccess);
}

// A free needs no current context (measured on an H200); most other calls do.
TEST_CASE("calls without a current context", "[errors]") {
    Device device;
    void* const memory = allocate(8192);
    void* const other = allocate(8192);
    void* const freed = allocate(8192);
    fill(memory, 8192, 4);
    REQUIRE(cudaFree(freed) == cudaSuccess);
    REQUIRE(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
    CUdeviceptr none = 0;
    CHECK(cuMemFree(0) == CUDA_SUCCESS);
    CHECK(cuMemFree(address(freed)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(address(memory) + 512) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(0x1000) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(address(other)) == CUDA_SUCCESS);
    CHECK(cuMemFree(address(other)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc(&none, 4096) == CUDA_ERROR_INVALID_CONTEXT);
    std::size_t free_bytes = 0;
    CHECK(cuMemGetInfo(&free_bytes, nullptr) == CUDA_ERROR_INVALID_CONTEXT);
    CUdeviceptr base = 0;
    measured("cuMemGetAddressRange of live memory without a context",
             cuMemGetAddressRange(&base, nullptr, address(memory)));
    measured("cuMemGetAddressRange of freed memory without a context",
             cuMemGetAddressRange(&base, nullptr, address(freed)));
    unsigned long long id = 0;
    measured("cuPointerGetAttribute of live memory without a context",
             cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(memory)));
    CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(freed)) !=
          CUDA_SUCCESS);
    if (!memory_is_mapped()) { // an attempt to export would end that
        CUipcMemHandle handle{};
        const CUresult exported = cuIpcGetMemHandle(&handle, address(freed));
        measured("cuIpcGetMemHandle of freed memory without a context", exported);
        CHECK(exported != CUDA_SUCCESS);
    }
    REQUIRE(cuCtxSetCurrent(device.context()) == CUDA_SUCCESS);
    CHECK(holds(memory, 8192, 4));
    CHECK(cuMemFree(address(memory)) == CUDA_SUCCESS);
    CHECK(cuMemFree(address(memory)) == CUDA_ERROR_INVALID_VALUE);
}

// Measured on an H200: nothing of this is permitted in there, and nothing changes.
TEST_CASE("calls inside a host callback", "[errors]") {
    struct Inside {
        CUdeviceptr live;
        CUresult allocated;
        CUresult freed;
        CUresult freed_null;
        CUresult asked;
        cudaError_t through_runtime;
    };
    Device device;
    Stream stream;
    const bool host_function = GENERATE(true, false);
    void* const memory = allocate(4096);
    fill(memory, 4096, 9);
    Inside inside{address(memory), CUDA_SUCCESS, CUDA_SUCCESS,
                  CUDA_SUCCESS,    CUDA_SUCCESS, cudaSuccess};
    const auto call = [](void* data) {
        auto& in = *static_cast<Inside*>(data);
        CUdeviceptr none = 0;
        in.allocated = cuMemAlloc(&none, 4096);
        in.freed = cuMemFree(in.live);
        in.freed_null = cuMemFree(0);
        std::size_t free_bytes = 0;
        in.asked = cuMemGetInfo(&free_bytes, nullptr);
        in.through_runtime = cudaFree(pointer(in.live));
        cudaGetLastError();
    };
    static void (*const kCall)(void*) = call;
    if (host_function) {
        REQUIRE(cuLaunchHostFunc(stream, kCall, &inside) == CUDA_SUCCESS);
    } else {
        REQUIRE(cuStreamAddCallback(
                    stream, [](CUstream, CUresult, void* data) { kCall(data); }, &inside, 0) ==
                CUDA_SUCCESS);
    }
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(inside.allocated == CUDA_ERROR_NOT_PERMITTED);
    CHECK(inside.freed == CUDA_ERROR_NOT_PERMITTED);
    CHECK(inside.freed_null == CUDA_ERROR_NOT_PERMITTED);
    CHECK(inside.asked == CUDA_ERROR_NOT_PERMITTED);
    measured("cudaFree inside a host callback", inside.through_runtime);
    CHECK(inside.through_runtime != cudaSuccess);
    CHECK(holds(memory, 4096, 9));
    CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("a free from another thread", "[errors][threads]") {
    Device device;
    void* const first = allocate(4096);
    void* const second = allocate(4096);
    CUresult without_context = CUDA_ERROR_UNKNOWN;
    cudaError_t through_runtime = cudaErrorUnknown;
    cudaError_t twice = cudaSuccess;
    cudaError_t last = cudaSuccess;
    CUresult with_context = CUDA_ERROR_UNKNOWN;
    void* const third = allocate(4096);
    std::thread([&] {
        without_context = cuMemFree(address(third));
        through_runtime = cudaFree(first); // makes the primary context current
        twice = cudaFree(first);
        last = cudaGetLastError();
        with_context = cuMemFree(address(second));
    }).join();
    CHECK(without_context == CUDA_SUCCESS);
    CHECK(through_runtime == cudaSuccess);
    CHECK(twice == cudaErrorInvalidValue);
    CHECK(last == cudaErrorInvalidValue);
    CHECK(with_context == CUDA_SUCCESS);
    CHECK(cudaGetLastError() == cudaSuccess); // each thread has its own
    CHECK_FAILS(cudaFree(first), cudaErrorInvalidValue);
    CHECK_FAILS(cudaFree(second), cudaErrorInvalidValue);
    CHECK_FAILS(cudaFree(third), cudaErrorInvalidValue);
}

TEST_CASE("alignment and content of many sizes", "[errors]") {
    Device device;
    std::vector<std::size_t> sizes = {1,
                                      2,
                                      255,
                                      256,
                                      257,
                                      511,
                                      512,
                                      513,
                                      1000,
                                      4095,
                                      4097,
                                      65535,
                                      65537,
                                      kMiB - 1,
                                      kMiB,
                                      kMiB + 1,
                                      2 * kMiB,
                                      2 * kMiB + 1,
                                      10 * kMiB - 1,
                                      10 * kMiB,
                                      10 * kMiB + 1,
                                      20 * kMiB + 3};
    std::mt19937 random = random_source("alignment and content");
    for (int i = 0; i < 200; ++i)
        sizes.push_back(1 + random() % (i % 4 == 0 ? 2 * kMiB : 16 * kKiB));
    std::shuffle(sizes.begin(), sizes.end(), random);
    struct Piece {
        void* memory;
        std::size_t bytes;
        std::uint32_t tag;
    };
    std::vector<Piece> pieces;
    for (const std::size_t bytes : sizes) {
        const auto tag = static_cast<std::uint32_t>(pieces.size());
        pieces.push_back({allocate(bytes), bytes, tag});
        REQUIRE(address(pieces.back().memory) % 512 == 0);
        fill(pieces.back().memory, bytes, tag);
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.memory < b.memory; });
    for (std::size_t i = 1; i < pieces.size(); ++i) {
        REQUIRE(plus(pieces[i - 1].memory, pieces[i - 1].bytes) <= pieces[i].memory);
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    const std::size_t half = pieces.size() / 2;
    for (std::size_t i = 0; i < half; ++i)
        REQUIRE(cudaFree(pieces[i].memory) == cudaSuccess);
    for (std::size_t i = 0; i < half; ++i) {
        pieces[i].memory = allocate(pieces[i].bytes);
        pieces[i].tag += 1000;
        fill(pieces[i].memory, pieces[i].bytes, pieces[i].tag);
    }
    for (const Piece& piece : pieces) {
        REQUIRE(holds(piece.memory, piece.bytes, piece.tag));
        REQUIRE(cudaFree(piece.memory) == cudaSuccess);
    }
}
