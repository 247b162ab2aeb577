// Memory for other processes: right, or a clear error, never another allocation's bytes.
#include "tests/contract/contract.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace contract;

namespace {

constexpr int kCannot = 40; // the importer's status where CUDA IPC does not work at all

std::string to_hex(const cudaIpcMemHandle_t& handle) {
    std::string text;
    char digits[3];
    for (const char byte : handle.reserved) {
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
        text += digits;
    }
    return text;
}

cudaIpcMemHandle_t from_hex(const char* text) {
    cudaIpcMemHandle_t handle{};
    for (char& byte : handle.reserved) {
        const char digits[3] = {text[0], text[1], '\0'};
        byte = static_cast<char>(std::strtoul(digits, nullptr, 16));
        text += 2;
    }
    return handle;
}

// Lets another process open the handle, look for the pattern of `tag` in its first `bytes` and
// write the one of tag + 1. Its exit status.
int import_elsewhere(const cudaIpcMemHandle_t& handle, std::size_t bytes, std::uint32_t tag) {
    return run_alone("imports memory", {"CONTRACT_HANDLE=" + to_hex(handle),
                                        "CONTRACT_BYTES=" + std::to_string(bytes),
                                        "CONTRACT_TAG=" + std::to_string(tag)});
}

// Exports `memory` and checks the import, both ways. Returns whether it could be exported.
bool check_export(void* memory, std::size_t bytes, std::uint32_t tag, const char* what) {
    fill(memory, bytes, tag);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    cudaIpcMemHandle_t handle{};
    const cudaError_t exported = cudaIpcGetMemHandle(&handle, memory);
    measured(std::string("cudaIpcGetMemHandle of ") + what, exported);
    CHECK(cudaGetLastError() == exported);
    if (exported != cudaSuccess) {
        CHECK(holds(memory, bytes, tag));
        return false;
    }
    const int status = import_elsewhere(handle, bytes, tag);
    if (status == kCannot) {
        skipped("import of " + std::string(what), "no CUDA IPC between processes here");
        return true;
    }
    CHECK(status == 0);
    CHECK(holds(memory, bytes, tag + 1));
    return true;
}

// With memory that is mapped the first export is refused, clearly and without harm; what is
// allocated from then on can be exported.
void begin_exporting() {
    if (!memory_is_mapped()) return;
    void* const memory = allocate(3 * kMiB);
    CHECK_FALSE(check_export(memory, 3 * kMiB, 1, "mapped memory"));
    cudaIpcMemHandle_t handle{};
    CHECK_FAILS(cudaIpcGetMemHandle(&handle, memory), cudaErrorInvalidValue);
    CHECK(cudaFree(memory) == cudaSuccess);
}

} // namespace

// The other process.
TEST_CASE("imports memory", "[.alone]") {
    limit_this_process(100);
    const char* const text = std::getenv("CONTRACT_HANDLE");
    REQUIRE(text != nullptr);
    const std::size_t bytes = std::strtoull(std::getenv("CONTRACT_BYTES"), nullptr, 10);
    const auto tag =
        static_cast<std::uint32_t>(std::strtoul(std::getenv("CONTRACT_TAG"), nullptr, 10));
    Device device;
    void* const own = allocate(4096); // something of its own, before and after
    fill(own, 4096, 77);
    void* memory = nullptr;
    const cudaError_t opened =
        cudaIpcOpenMemHandle(&memory, from_hex(text), cudaIpcMemLazyEnablePeerAccess);
    if (opened == cudaErrorMapBufferObjectFailed || opened == cudaErrorNotSupported ||
        opened == cudaErrorSystemNotReady) {
        std::exit(kCannot);
    }
    REQUIRE(opened == cudaSuccess);
    REQUIRE(holds(memory, bytes, tag));
    fill(memory, bytes, tag + 1);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    REQUIRE(cuMemGetAddressRange(&base, &size, address(memory) + 100) == CUDA_SUCCESS);
    CHECK(base == address(memory));
    CHECK(size >= bytes);
    if (bytes > 4 * kMiB) {
        measured("bytes exported", static_cast<long long>(bytes));
        measured("bytes that the importer is told", static_cast<long long>(size));
    }
    const cudaError_t freed = cudaFree(memory);
    if (bytes > 4 * kMiB) measured("cudaFree of imported memory", freed);
    cudaGetLastError();
    if (freed != cudaSuccess) CHECK(cudaIpcCloseMemHandle(memory) == cudaSuccess);
    CHECK(holds(own, 4096, 77));
    CHECK(cudaFree(own) == cudaSuccess);
}

ALONE_TEST_CASE("a large allocation is exported", "[ipc]") {
    Device device;
    begin_exporting();
    constexpr std::size_t kBytes = 24 * kMiB + 4096;
    void* const memory = allocate(kBytes);
    CHECK(check_export(memory, kBytes, 10, "a large allocation"));
    CHECK(check_export(memory, kBytes, 20, "a large allocation, again"));
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK_FAILS(cudaFree(memory), cudaErrorInvalidValue);
    cudaIpcMemHandle_t handle{};
    CHECK_FAILS(cudaIpcGetMemHandle(&handle, memory), cudaErrorInvalidValue);
    // The next owner of the address.
    void* const next = allocate(kBytes / 2);
    CHECK(check_export(next, kBytes / 2, 30, "a later large allocation"));
    CHECK(cudaFree(next) == cudaSuccess);
}

ALONE_TEST_CASE("allocations that share what the driver gave", "[ipc]") {
    Device device;
    begin_exporting();
    std::vector<void*> all;
    constexpr std::size_t kBytes = 20 * kKiB;
    for (int i = 0; i < 4; ++i) {
        all.push_back(allocate(kBytes));
        fill(all.back(), kBytes, 1000);
    }
    int exported = 0;
    for (std::uint32_t i = 0; i < all.size(); ++i)
        exported += check_export(all[i], kBytes, 40 + 10 * i, "a small allocation") ? 1 : 0;
    measured("small allocations that could be exported", exported);
    CHECK(exported > 0);
    for (std::uint32_t i = 0; i < all.size(); ++i) {
        const bool imported = holds(all[i], kBytes, 41 + 10 * i);
        CHECK((imported || holds(all[i], kBytes, 40 + 10 * i)));
        CHECK(cudaFree(all[i]) == cudaSuccess);
    }
    // A part of a larger block, where an allocator may have cut it out.
    void* const large = allocate(40 * kMiB);
    REQUIRE(cudaFree(large) == cudaSuccess);
    void* const first = allocate(5 * kMiB);
    void* const second = allocate(5 * kMiB);
    check_export(first, 5 * kMiB, 100, "the first of two medium allocations");
    check_export(second, 5 * kMiB, 110, "the second of two medium allocations");
    CHECK(cudaFree(first) == cudaSuccess);
    CHECK(cudaFree(second) == cudaSuccess);
}

// A handle always names a whole allocation.
ALONE_TEST_CASE("an interior pointer is exported", "[ipc]") {
    Device device;
    begin_exporting();
    constexpr std::size_t kBytes = 24 * kMiB;
    void* const memory = allocate(kBytes);
    fill(memory, kBytes, 5);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    cudaIpcMemHandle_t whole{};
    cudaIpcMemHandle_t inside{};
    REQUIRE(cudaIpcGetMemHandle(&whole, memory) == cudaSuccess);
    const cudaError_t exported = cudaIpcGetMemHandle(&inside, plus(memory, 3 * kMiB));
    measured("cudaIpcGetMemHandle of an interior pointer", exported);
    CHECK(cudaGetLastError() == exported);
    if (exported == cudaSuccess) {
        const int status = import_elsewhere(inside, kBytes, 5);
        CHECK((status == 0 || status == kCannot));
    }
    CHECK(cudaFree(memory) == cudaSuccess);
}

ALONE_TEST_CASE("what cannot be exported", "[ipc]") {
    Device device;
    begin_exporting();
    Stream stream;
    cudaIpcMemHandle_t handle{};
    int on_stack = 0;
    CHECK_FAILS(cudaIpcGetMemHandle(&handle, &on_stack), cudaErrorInvalidValue);
    void* memory = nullptr;
    REQUIRE(cudaMallocAsync(&memory, 4096, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK_FAILS(cudaIpcGetMemHandle(&handle, memory), cudaErrorInvalidValue);
    CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
    CUdeviceptr opened = 0;
    void* const own = allocate(24 * kMiB);
    CUipcMemHandle own_handle{};
    REQUIRE(cuIpcGetMemHandle(&own_handle, address(own)) == CUDA_SUCCESS);
    const CUresult here =
        cuIpcOpenMemHandle(&opened, own_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    measured("cuIpcOpenMemHandle in the exporting process", here);
    if (here == CUDA_SUCCESS) cuIpcCloseMemHandle(opened);
    CHECK(cudaFree(own) == cudaSuccess);
}
