// The stream-ordered calls beside cudaMalloc and cudaFree, and memory that is not the device's
// alone.
#include "tests/contract/contract.h"

#include <cstring>

using namespace contract;

TEST_CASE("cudaFreeAsync of a cudaMalloc pointer", "[async]") {
    Device device;
    Kernels kernels;
    Stream stream;
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 4096, 3 * kMiB);
    void* const memory = allocate(bytes);
    void* const neighbour = allocate(bytes);
    void* const result = allocate(4096);
    fill(memory, bytes, 1);
    fill(neighbour, bytes, 2);
    kernels.late_copy(result, memory, 4096, 5, stream);
    CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
    void* const next = allocate(bytes);
    fill(next, bytes, 3);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(holds(result, 4096, 1));
    CHECK(holds(next, bytes, 3));
    CHECK(holds(neighbour, bytes, 2));
    CHECK_FAILS(cudaFreeAsync(plus(neighbour, 512), stream), cudaErrorInvalidValue);
    CHECK_FAILS(cudaFreeAsync(pointer(0x1000), stream), cudaErrorInvalidValue);
    CHECK(cuMemFreeAsync(0, stream) == CUDA_SUCCESS);
    measured("cudaFreeAsync(null)", cudaFreeAsync(nullptr, stream));
    cudaGetLastError();
    CHECK(holds(neighbour, bytes, 2));
    CHECK(cudaFree(neighbour) == cudaSuccess);
    CHECK(cudaFree(next) == cudaSuccess);
    CHECK(cudaFree(result) == cudaSuccess);
}

// Only once the free has run: before that a second one succeeds natively and corrupts the driver's
// heap (seen on an H200), so nobody may do that.
TEST_CASE("a cudaMalloc pointer that cudaFreeAsync has freed", "[async]") {
    Device device;
    Stream stream;
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 4096, 3 * kMiB);
    void* const memory = allocate(bytes);
    void* const neighbour = allocate(bytes);
    fill(neighbour, bytes, 2);
    CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CUdeviceptr base = 0;
    CHECK(cuMemGetAddressRange(&base, nullptr, address(memory)) == CUDA_ERROR_NOT_FOUND);
    CHECK_FAILS(cudaFree(memory), cudaErrorInvalidValue);
    CHECK_FAILS(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
    CHECK(holds(neighbour, bytes, 2));
    CHECK(cudaFree(neighbour) == cudaSuccess);
}

TEST_CASE("cudaFree of a cudaMallocAsync pointer", "[async]") {
    Device device;
    Stream stream;
    const bool settled = GENERATE(true, false); // whether the allocation has run
    for (int round = 0; round < 5; ++round) {
        void* memory = nullptr;
        REQUIRE(cudaMallocAsync(&memory, 100000, stream) == cudaSuccess);
        REQUIRE(cudaMemsetAsync(memory, round, 100000, stream) == cudaSuccess);
        unsigned char byte = 99;
        if (settled) {
            REQUIRE(cudaMemcpyAsync(&byte, plus(memory, 99999), 1, cudaMemcpyDeviceToHost,
                                    stream) == cudaSuccess);
            REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
            CHECK(byte == round);
        } else {
            REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
        }
        CHECK(cudaFree(memory) == cudaSuccess);
        CHECK_FAILS(cudaFree(memory), cudaErrorInvalidValue);
    }
    void* memory = nullptr;
    measured("cudaMallocAsync of 0 bytes", cudaMallocAsync(&memory, 0, stream));
    cudaGetLastError();
}

TEST_CASE("attributes of a cudaMallocAsync pointer", "[async]") {
    Device device;
    Stream stream;
    void* memory = nullptr;
    REQUIRE(cudaMallocAsync(&memory, 3 * kMiB, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    void* const plain = allocate(3 * kMiB);
    CUmemoryPool of = nullptr;
    CUmemoryPool expected = nullptr;
    CHECK(cuDeviceGetDefaultMemPool(&expected, 0) == CUDA_SUCCESS);
    CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                address(plus(memory, 12345))) == CUDA_SUCCESS);
    CHECK(of == expected);
    int capable = 1;
    CHECK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                address(memory)) == CUDA_SUCCESS);
    CHECK(capable == 0);
    cudaIpcMemHandle_t handle{};
    const cudaError_t exported = cudaIpcGetMemHandle(&handle, memory);
    measured("cudaIpcGetMemHandle of a cudaMallocAsync pointer", exported);
    CHECK(exported != cudaSuccess);
    cudaGetLastError();
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void* values[] = {&of, &capable};
    of = nullptr;
    CHECK(cuPointerGetAttributes(2, attributes, values, address(memory)) == CUDA_SUCCESS);
    CHECK(of == expected);
    CHECK(capable == 0);
    CHECK(cuPointerGetAttributes(2, attributes, values, address(plain)) == CUDA_SUCCESS);
    CHECK(of != expected);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    CHECK(cuMemGetAddressRange(&base, &size, address(plus(memory, 777))) == CUDA_SUCCESS);
    CHECK(base == address(memory));
    measured("its size by cuMemGetAddressRange, 3 MiB asked for", static_cast<long long>(size));
    CHECK(size >= 3 * kMiB);
    CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaFree(plain) == cudaSuccess);
}

TEST_CASE("the default memory pool's figures", "[async]") {
    Device device;
    Stream stream;
    cudaMemPool_t pool = nullptr;
    REQUIRE(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
    const auto figure = [pool](cudaMemPoolAttr which) {
        cuuint64_t value = 0;
        CHECK(cudaMemPoolGetAttribute(pool, which, &value) == cudaSuccess);
        return value;
    };
    cuuint64_t zero = 0;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero) == cudaSuccess);
    const cuuint64_t used = figure(cudaMemPoolAttrUsedMemCurrent);
    void* memory = nullptr;
    REQUIRE(cudaMallocAsync(&memory, 5 * kMiB, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    const cuuint64_t more = figure(cudaMemPoolAttrUsedMemCurrent) - used;
    measured("memory in use after 5 MiB more", static_cast<long long>(more));
    CHECK(more >= 5 * kMiB);
    CHECK(more <= 8 * kMiB);
    CHECK(figure(cudaMemPoolAttrReservedMemCurrent) >= used + 5 * kMiB);
    CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(figure(cudaMemPoolAttrUsedMemCurrent) == used);
    CHECK(figure(cudaMemPoolAttrUsedMemHigh) >= used + 5 * kMiB);
    CHECK(figure(cudaMemPoolAttrReservedMemHigh) >= used + 5 * kMiB);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero) == cudaSuccess);
    CHECK(figure(cudaMemPoolAttrUsedMemHigh) == used);
    cuuint64_t one = 1;
    measured("setting the high-water mark to 1",
             cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &one));
    cudaGetLastError();
    const cuuint64_t reserved = figure(cudaMemPoolAttrReservedMemCurrent);
    CHECK(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
    CHECK(figure(cudaMemPoolAttrReservedMemCurrent) <= reserved);
}

TEST_CASE("cudaMallocAsync on every kind of stream", "[async]") {
    Device device;
    Stream non_blocking;
    cudaStream_t blocking = nullptr;
    REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 1000, 2 * kMiB);
    unsigned char value = 0;
    for (const cudaStream_t stream :
         {static_cast<cudaStream_t>(non_blocking), blocking, cudaStream_t{nullptr},
          cudaStreamLegacy, cudaStreamPerThread}) {
        for (int round = 0; round < 3; ++round) {
            void* memory = nullptr;
            REQUIRE(cudaMallocAsync(&memory, bytes, stream) == cudaSuccess);
            CHECK(cudaMemsetAsync(memory, ++value, bytes, stream) == cudaSuccess);
            unsigned char last = 0;
            CHECK(cudaMemcpyAsync(&last, plus(memory, bytes - 1), 1, cudaMemcpyDeviceToHost,
                                  stream) == cudaSuccess);
            CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
            REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
            CHECK(last == value);
        }
    }
    CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("both kinds of allocation mixed", "[async]") {
    Device device;
    Stream stream;
    std::mt19937 random = random_source("both kinds mixed");
    struct Piece {
        void* memory;
        std::size_t bytes;
        std::uint32_t tag;
        bool async;
    };
    std::vector<Piece> live;
    for (std::uint32_t step = 0; step < 300; ++step) {
        if (live.size() > 20) {
            const std::size_t victim = random() % live.size();
            const Piece piece = live[victim];
            live[victim] = live.back();
            live.pop_back();
            REQUIRE(holds(piece.memory, piece.bytes, piece.tag));
            if (piece.async && random() % 2 == 0) {
                REQUIRE(cudaFreeAsync(piece.memory, stream) == cudaSuccess);
            } else {
                REQUIRE(cudaFree(piece.memory) == cudaSuccess);
            }
        }
        Piece piece{nullptr, 1 + random() % (200 * kKiB), step, random() % 2 == 0};
        if (piece.async) {
            REQUIRE(cudaMallocAsync(&piece.memory, piece.bytes, stream) == cudaSuccess);
            REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
        } else {
            piece.memory = allocate(piece.bytes);
        }
        fill(piece.memory, piece.bytes, step);
        live.push_back(piece);
    }
    for (const Piece& piece : live) {
        REQUIRE(holds(piece.memory, piece.bytes, piece.tag));
        REQUIRE(cudaFree(piece.memory) == cudaSuccess);
    }
}

TEST_CASE("an explicit pool", "[async]") {
    Device device;
    Stream stream;
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    cudaMemPool_t pool = nullptr;
    REQUIRE(cudaMemPoolCreate(&pool, &properties) == cudaSuccess);
    void* first = nullptr;
    void* second = nullptr;
    REQUIRE(cudaMallocFromPoolAsync(&first, 70000, pool, stream) == cudaSuccess);
    REQUIRE(cudaMallocFromPoolAsync(&second, 70000, pool, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    fill(first, 70000, 4);
    fill(second, 70000, 5);
    CUmemoryPool of = nullptr;
    CHECK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address(first)) ==
          CUDA_SUCCESS);
    CHECK(of == pool);
    CHECK(holds(first, 70000, 4));
    CHECK(holds(second, 70000, 5));
    CHECK(cudaFreeAsync(first, stream) == cudaSuccess);
    CHECK(cudaFree(second) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaMemPoolDestroy(pool) == cudaSuccess);
}

TEST_CASE("managed memory", "[async]") {
    Device device;
    void* memory = nullptr;
    REQUIRE(cudaMallocManaged(&memory, 50000, cudaMemAttachGlobal) == cudaSuccess);
    REQUIRE(cudaMemset(memory, 0x5A, 50000) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(static_cast<unsigned char*>(memory)[49999] == 0x5A);
    cudaPointerAttributes attributes{};
    REQUIRE(cudaPointerGetAttributes(&attributes, memory) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeManaged);
    CHECK_FAILS(cudaFree(plus(memory, 4096)), cudaErrorInvalidValue);
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK_FAILS(cudaFree(memory), cudaErrorInvalidValue);
}

TEST_CASE("pinned and registered memory", "[async]") {
    Device device;
    Stream stream;
    void* pinned = nullptr;
    REQUIRE(cudaMallocHost(&pinned, 50000) == cudaSuccess);
    std::memset(pinned, 0x33, 50000);
    void* const memory = allocate(50000);
    REQUIRE(cudaMemcpyAsync(memory, pinned, 50000, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    unsigned char byte = 0;
    REQUIRE(cudaMemcpy(&byte, plus(memory, 49999), 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(byte == 0x33);
    CHECK_FAILS(cudaFree(pinned), cudaErrorInvalidValue);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(cudaFreeHost(nullptr) == cudaSuccess);
    CHECK_FAILS(cudaFreeHost(memory), cudaErrorInvalidValue);
    std::vector<char> host(1 << 20);
    REQUIRE(cudaHostRegister(host.data(), host.size(), cudaHostRegisterDefault) == cudaSuccess);
    const cudaError_t registered = cudaFree(host.data());
    measured("cudaFree of registered memory", registered);
    CHECK(registered != cudaSuccess);
    cudaGetLastError();
    CHECK(cudaHostUnregister(host.data()) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
}
