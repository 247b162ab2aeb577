// What the simulated runtime must share with the real one, seen from a program and from the
// simulated driver's counters.
#include "tests/simcuda/runtime/runtime_fixture.h"

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

// The per-thread twins have no plain declaration: the header renames instead.
extern "C" {
cudaError_t cudaMallocAsync_ptsz(void** out, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void* address, cudaStream_t stream);
cudaError_t cudaMemset_ptds(void* address, int value, size_t bytes);
cudaError_t cudaMemcpyAsync_ptsz(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                                 cudaStream_t stream);
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream);
}

TEST_CASE("nothing is asked of the driver for zero bytes and null pointers") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    REQUIRE(control::simulated());
    control::reset_calls();
    void* address = &address;
    CHECK(cudaMalloc(&address, 0) == cudaSuccess);
    CHECK(address == nullptr);
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(cudaFreeHost(nullptr) == cudaSuccess);
    CHECK(control::calls("cuMemAlloc_v2") == 0);
    CHECK(control::calls("cuMemFree_v2") == 0);
    CHECK(cudaMalloc(nullptr, 16) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("an allocation is one call of the driver") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    control::reset_calls();
    { Buffer buffer(1000); }
    CHECK(control::calls("cuMemAlloc_v2") == 1);
    CHECK(control::calls("cuMemFree_v2") == 1);
}

TEST_CASE("the driver's codes keep their numbers and become the last error") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    void* address = nullptr;
    control::fail("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cudaMalloc(&address, 64) == cudaErrorMemoryAllocation);
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a success does not clear the last error") {
    CHECK(cudaFree(&host_object) == cudaErrorInvalidValue);
    Buffer buffer(64);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("the last error belongs to its thread") {
    CHECK(cudaSetDevice(99) == cudaErrorInvalidDevice);
    cudaError_t seen = cudaErrorUnknown;
    std::thread([&] { seen = cudaGetLastError(); }).join();
    CHECK(seen == cudaSuccess);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("per-thread twins reach the driver's twins") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    Buffer buffer(256);
    std::vector<char> host(256);
    control::reset_calls();
    CHECK(cudaMemcpyAsync(buffer.address, host.data(), 256, cudaMemcpyHostToDevice, nullptr) ==
          cudaSuccess);
    CHECK(cudaMemset(buffer.address, 1, 256) == cudaSuccess);
    CHECK(control::calls("cuMemcpyHtoDAsync_v2") == 1);
    CHECK(control::calls("cuMemcpyHtoDAsync_v2_ptsz") == 0);
    CHECK(control::calls("cuMemsetD8_v2") == 1);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);

    CHECK(cudaMemcpyAsync_ptsz(buffer.address, host.data(), 256, cudaMemcpyHostToDevice, nullptr) ==
          cudaSuccess);
    CHECK(cudaMemset_ptds(buffer.address, 2, 256) == cudaSuccess);
    CHECK(control::calls("cuMemcpyHtoDAsync_v2_ptsz") == 1);
    CHECK(control::calls("cuMemsetD8_v2_ptds") == 1);
    CHECK(control::calls("cuMemcpyHtoDAsync_v2") == 1);

    void* ordered = nullptr;
    CHECK(cudaMallocAsync_ptsz(&ordered, 512, nullptr) == cudaSuccess);
    CHECK(cudaFreeAsync_ptsz(ordered, nullptr) == cudaSuccess);
    CHECK(cudaStreamSynchronize_ptsz(nullptr) == cudaSuccess);
    CHECK(control::calls("cuMemAllocAsync_ptsz") == 1);
    CHECK(control::calls("cuMemFreeAsync_ptsz") == 1);
    CHECK(control::calls("cuMemAllocAsync") == 0);
}

TEST_CASE("each direction of a copy has its own driver entry") {
    Buffer from(128);
    Buffer to(128);
    std::vector<char> host(128, 7);
    std::vector<char> back(128);
    control::reset_calls();
    CHECK(cudaMemcpy(from.address, host.data(), 128, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaMemcpy(to.address, from.address, 128, cudaMemcpyDeviceToDevice) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaMemcpy(back.data(), to.address, 128, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(control::calls("cuMemcpyHtoD_v2") == 1);
    CHECK(control::calls("cuMemcpyDtoD_v2") == 1);
    CHECK(control::calls("cuMemcpyDtoH_v2") == 1);
    CHECK(back == host);
    CHECK(cudaMemcpy(back.data(), to.address, 128, static_cast<cudaMemcpyKind>(7)) ==
          cudaErrorInvalidMemcpyDirection);
    CHECK(cudaMemcpy2D(to.address, 16, host.data(), 32, 32, 2, cudaMemcpyHostToDevice) ==
          cudaErrorInvalidPitchValue);
    cudaGetLastError();
}

TEST_CASE("two-dimensional copies respect both pitches") {
    void* device = nullptr;
    size_t pitch = 0;
    REQUIRE(cudaMallocPitch(&device, &pitch, 10, 3) == cudaSuccess);
    REQUIRE(pitch >= 10);
    std::vector<char> host(36);
    for (size_t i = 0; i < host.size(); ++i) {
        host[i] = static_cast<char>(i);
    }
    std::vector<char> back(30);
    CHECK(cudaMemcpy2D(device, pitch, host.data(), 12, 10, 3, cudaMemcpyHostToDevice) ==
          cudaSuccess);
    CHECK(cudaMemcpy2D(back.data(), 10, device, pitch, 10, 3, cudaMemcpyDeviceToHost) ==
          cudaSuccess);
    for (size_t row = 0; row < 3; ++row) {
        CHECK(std::memcmp(&back[row * 10], &host[row * 12], 10) == 0);
    }
    CHECK(cudaFree(device) == cudaSuccess);
}

TEST_CASE("a thread without a context gets the primary one, a program's own stays") {
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    void* lib = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    REQUIRE(lib);
    auto get_current = reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(lib, "cuCtxGetCurrent"));
    auto set_current = reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(lib, "cuCtxSetCurrent"));
    auto create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
        dlsym(lib, "cuCtxCreate_v2"));
    auto destroy = reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(lib, "cuCtxDestroy_v2"));
    CUcontext primary = nullptr;
    REQUIRE(get_current(&primary) == CUDA_SUCCESS);
    REQUIRE(primary);
    std::thread([&] {
        CUcontext current = primary;
        get_current(&current);
        CHECK(current == nullptr);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        get_current(&current);
        CHECK(current == primary);

        CUcontext own = nullptr;
        CHECK(create(&own, 0, 0) == CUDA_SUCCESS);
        Buffer buffer(64);
        get_current(&current);
        CHECK(current == own);
        CHECK(cudaFree(buffer.address) == cudaSuccess);
        buffer.address = nullptr;
        CHECK(destroy(own) == CUDA_SUCCESS);
        CHECK(set_current(primary) == CUDA_SUCCESS);
    }).join();
}

TEST_CASE("the first call after cudaDeviceReset makes a new primary context") {
    void* lost = nullptr;
    REQUIRE(cudaMalloc(&lost, 64) == cudaSuccess);
    std::thread beside([] { CHECK(cudaDeviceSynchronize() == cudaSuccess); });
    beside.join();
    CHECK(cudaDeviceReset() == cudaSuccess);
    { Buffer buffer(64); }
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("devices") {
    int count = 0;
    int device = -1;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(count >= 1);
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
    CHECK(cudaSetDevice(count) == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    cudaDeviceProp properties{};
    CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess);
    CHECK(properties.totalGlobalMem == total_bytes);
    CHECK(properties.name[0] != '\0');
    CHECK(cudaGetDeviceProperties(&properties, count) == cudaErrorInvalidDevice);
    cudaGetLastError();
}

TEST_CASE("pointer attributes: device, pinned, freed, unknown") {
    cudaPointerAttributes attributes{};
    void* freed = nullptr;
    {
        Buffer buffer(4096);
        freed = buffer.address;
        CHECK(cudaPointerGetAttributes(&attributes, static_cast<char*>(buffer.address) + 100) ==
              cudaSuccess);
        CHECK(attributes.type == cudaMemoryTypeDevice);
        CHECK(attributes.device == 0);
    }
    CHECK(cudaPointerGetAttributes(&attributes, freed) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    void* pinned = nullptr;
    REQUIRE(cudaMallocHost(&pinned, 100) == cudaSuccess);
    CHECK(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeHost);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(cudaPointerGetAttributes(&attributes, &attributes) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
}

TEST_CASE("names and texts of errors") {
    CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
    CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
    CHECK(std::string(cudaGetErrorString(cudaSuccess)) == "no error");
    CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) ==
          "unrecognized error code");
}

TEST_CASE("driver entry points come from the same table") {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult status{};
    CHECK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &address, 3020, cudaEnableDefault,
                                           &status) == cudaSuccess);
    CHECK(status == cudaDriverEntryPointSuccess);
    void* lib = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    CHECK(address == dlsym(lib, "cuMemAlloc_v2"));
    CHECK(cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &address, 11020,
                                           cudaEnablePerThreadDefaultStream,
                                           &status) == cudaSuccess);
    CHECK(address == dlsym(lib, "cuMemAllocAsync_ptsz"));
    CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &address, 12000, cudaEnableDefault,
                                           &status) == cudaSuccess);
    CHECK(status == cudaDriverEntryPointSymbolNotFound);
    CHECK(address == nullptr);
}

TEST_CASE("exports carry the version node of the real library") {
    void* lib = dlopen("libcudart.so.13", RTLD_NOLOAD | RTLD_LAZY);
    REQUIRE(lib);
    CHECK(dlvsym(lib, "cudaMalloc", "libcudart.so.13") != nullptr);
    CHECK(dlsym(lib, "__cudaRegisterFatBinary") != nullptr);
    CHECK(dlsym(lib, "_ZN7simcuda7runtime14driver_libraryEv") == nullptr);
}

TEST_CASE("launching what was never registered") {
    CHECK(cudaLaunchKernel(&host_object, dim3(1), dim3(1), nullptr, 0, nullptr) ==
          cudaErrorInvalidDeviceFunction);
    cudaKernel_t kernel = nullptr;
    CHECK(cudaGetKernel(&kernel, &host_object) == cudaErrorInvalidDeviceFunction);
    cudaGetLastError();
}
