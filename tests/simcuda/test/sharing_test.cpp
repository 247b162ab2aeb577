// Memory seen twice: IPC handles and virtual memory management.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "fixture.h"

using namespace simtest;

namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

CUmemGenericAllocationHandle physical(std::size_t bytes) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle h = 0;
    REQUIRE(cuMemCreate(&h, bytes, &prop, 0) == CUDA_SUCCESS);
    return h;
}

void allow(CUdeviceptr p, std::size_t bytes) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    REQUIRE(cuMemSetAccess(p, bytes, &access, 1) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("an IPC handle has the measured layout and does not open at home") {
    Device device;
    alloc(4096); // so that the next one does not begin its granule
    const CUdeviceptr p = alloc(3000);
    REQUIRE(cuMemsetD8(p, 42, 3000) == CUDA_SUCCESS);
    CUipcMemHandle handle{};
    REQUIRE(cuIpcGetMemHandle(&handle, p + 100) == CUDA_SUCCESS);
    std::uint64_t size = 0;
    std::memcpy(&size, handle.reserved + 16, sizeof size);
    CHECK(size == 3000);
    for (int i = 56; i < 64; ++i) {
        CHECK(handle.reserved[i] == 0);
    }
    CUdeviceptr opened = 0;
    CHECK(cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
          CUDA_ERROR_INVALID_CONTEXT);
}

// The other process of the next test: opens the handle in $SIMTEST_HANDLE and writes through it.
TEST_CASE("imports memory", "[.][import]") {
    Device device;
    const char* path = std::getenv("SIMTEST_HANDLE");
    REQUIRE(path != nullptr);
    CUipcMemHandle handle{};
    std::ifstream(path, std::ios::binary).read(handle.reserved, sizeof handle.reserved);
    CUdeviceptr p = 0;
    for (const int spoilt : {36, 52}) {
        CUipcMemHandle bad = handle;
        bad.reserved[spoilt] ^= 1;
        REQUIRE(cuIpcOpenMemHandle(&p, bad, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                CUDA_ERROR_INVALID_VALUE);
    }
    for (const int ignored : {0, 12, 56, 63}) {
        handle.reserved[ignored] ^= 1;
    }
    REQUIRE(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    REQUIRE(cuMemGetAddressRange(&base, &size, p + 100) == CUDA_SUCCESS);
    REQUIRE(base == p);
    REQUIRE(size == 4096);
    unsigned char byte = 0;
    REQUIRE(cuMemcpyDtoH(&byte, p, 1) == CUDA_SUCCESS);
    REQUIRE(byte == 17);
    REQUIRE(cuMemsetD8(p, 18, 4096) == CUDA_SUCCESS);
    REQUIRE(cuIpcCloseMemHandle(p) == CUDA_SUCCESS);
}

TEST_CASE("another process sees and changes exported memory") {
    Device device;
    alloc(4096); // so that the next one does not begin its granule
    const CUdeviceptr p = alloc(4096);
    REQUIRE(cuMemsetD8(p, 17, 4096) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CUipcMemHandle handle{};
    REQUIRE(cuIpcGetMemHandle(&handle, p + 100) == CUDA_SUCCESS); // opens the base all the same
    char path[] = "/tmp/simtest-handle-XXXXXX";
    const int file = mkstemp(path);
    REQUIRE(file >= 0);
    REQUIRE(write(file, handle.reserved, sizeof handle.reserved) == sizeof handle.reserved);
    close(file);
    const std::string command = std::string("SIMTEST_HANDLE=") + path + " /proc/" +
                                std::to_string(getpid()) + "/exe '[import]' > /dev/null 2>&1";
    CHECK(std::system(command.c_str()) == 0);
    unlink(path);
    unsigned char byte = 0;
    REQUIRE(cuMemcpyDtoH(&byte, p + 4095, 1) == CUDA_SUCCESS);
    CHECK(byte == 18);
}

TEST_CASE("mapped memory: aliases, rights, accounting") {
    Device device;
    std::size_t before = 0;
    std::size_t now = 0;
    REQUIRE(cuMemGetInfo(&before, nullptr) == CUDA_SUCCESS);
    CUdeviceptr p = 0;
    REQUIRE(cuMemAddressReserve(&p, 4 * kPage, 0, 0, 0) == CUDA_SUCCESS);
    CHECK(p % kPage == 0);
    const CUmemGenericAllocationHandle h = physical(kPage);
    REQUIRE(cuMemGetInfo(&now, nullptr) == CUDA_SUCCESS);
    CHECK(before - now == kPage);
    CHECK(cuMemMap(p + 1, kPage, 0, h, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemMap(p, kPage, 0, h, 0) == CUDA_SUCCESS);
    CHECK(cuMemMap(p, kPage, 0, h, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemMap(p + 2 * kPage, kPage, 0, h, 0) == CUDA_SUCCESS);
    allow(p, kPage);
    allow(p + 2 * kPage, kPage);
    REQUIRE(cuMemsetD8(p, 33, kPage) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    unsigned char byte = 0;
    REQUIRE(cuMemcpyDtoH(&byte, p + 2 * kPage + 5, 1) == CUDA_SUCCESS);
    CHECK(byte == 33);
    CUipcMemHandle handle{};
    CHECK(cuIpcGetMemHandle(&handle, p) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemRelease(h) == CUDA_SUCCESS);
    REQUIRE(cuMemUnmap(p, kPage) == CUDA_SUCCESS);
    CHECK(cuMemAddressFree(p, 4 * kPage) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemGetInfo(&now, nullptr) == CUDA_SUCCESS);
    CHECK(before - now == kPage);
    REQUIRE(cuMemUnmap(p + 2 * kPage, kPage) == CUDA_SUCCESS);
    REQUIRE(cuMemGetInfo(&now, nullptr) == CUDA_SUCCESS);
    CHECK(before == now);
    CHECK(cuMemAddressFree(p, 4 * kPage) == CUDA_SUCCESS);
    CHECK(control::errors() == 0);
}

TEST_CASE("a range over neighbouring mappings is one to copies, a gap is not") {
    Device device;
    CUdeviceptr p = 0;
    REQUIRE(cuMemAddressReserve(&p, 4 * kPage, 0, 0, 0) == CUDA_SUCCESS);
    const CUmemGenericAllocationHandle h = physical(2 * kPage);
    REQUIRE(cuMemMap(p, kPage, 0, h, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemMap(p + kPage, kPage, kPage, h, 0) == CUDA_SUCCESS);
    allow(p, 2 * kPage);
    CHECK(cuMemsetD8(p + 1, 1, 2 * kPage - 1) == CUDA_SUCCESS);
    CHECK(cuMemsetD8(p + 1, 1, 2 * kPage) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cuMemUnmap(p, 2 * kPage) == CUDA_SUCCESS);
    REQUIRE(cuMemRelease(h) == CUDA_SUCCESS);
}

TEST_CASE("cuMemUnmap does not wait, so unmapping what is still used is an error") {
    Device device;
    CUdeviceptr p = 0;
    REQUIRE(cuMemAddressReserve(&p, kPage, 0, 0, 0) == CUDA_SUCCESS);
    const CUmemGenericAllocationHandle h = physical(kPage);
    REQUIRE(cuMemMap(p, kPage, 0, h, 0) == CUDA_SUCCESS);
    allow(p, kPage);
    const CUstream s = stream();
    REQUIRE(launch_fill(s, p, 4096, 1, 100 * kMs) == CUDA_SUCCESS);
    SECTION("still running") {
        REQUIRE(cuMemUnmap(p, kPage) == CUDA_SUCCESS);
        CHECK(control::errors() + control::races() == 1);
    }
    SECTION("ended, but the host does not know it") {
        control::advance_ns(2000 * kMs);
        REQUIRE(cuMemUnmap(p, kPage) == CUDA_SUCCESS);
        CHECK(control::races() == 1);
    }
    SECTION("known to have ended") {
        REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
        REQUIRE(cuMemUnmap(p, kPage) == CUDA_SUCCESS);
        CHECK(control::errors() + control::races() == 0);
    }
}
