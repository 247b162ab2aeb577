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
    const CUmemGenericAllocationHandle h = physical(kPage);
    const CUmemGenericAllocationHandle large = physical(2 * kPage);
    CHECK(cuMemMap(p, kPage, 0, large, 0) == CUDA_ERROR_NOT_SUPPORTED); // only whole
    CHECK(cuMemMap(p, kPage, kPage, large, 0) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(cuMemRelease(large) == CUDA_SUCCESS);
    REQUIRE(cuMemMap(p, kPage, 0, h, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemMap(p + kPage, kPage, 0, h, 0) == CUDA_SUCCESS);
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

namespace {

// Two pages and a second mapping of them, the pages in the other order.
struct Alias {
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    CUmemGenericAllocationHandle pages[2] = {physical(kPage), physical(kPage)};

    Alias() {
        REQUIRE(cuMemAddressReserve(&first, 2 * kPage, 0, 0, 0) == CUDA_SUCCESS);
        REQUIRE(cuMemAddressReserve(&second, 2 * kPage, 0, 0, 0) == CUDA_SUCCESS);
        for (const std::size_t i : {0U, 1U}) {
            REQUIRE(cuMemMap(first + i * kPage, kPage, 0, pages[i], 0) == CUDA_SUCCESS);
            REQUIRE(cuMemMap(second + i * kPage, kPage, 0, pages[1 - i], 0) == CUDA_SUCCESS);
        }
        allow(first, 2 * kPage);
        allow(second, 2 * kPage);
    }
};

} // namespace

TEST_CASE("two addresses of one memory: accesses without an order are a race") {
    Device device;
    Alias alias;
    const CUstream a = stream();
    const CUstream b = stream();
    REQUIRE(launch_fill(a, alias.first + 4096, 4096, 1, 100) == CUDA_SUCCESS);
    SECTION("the same bytes") {
        REQUIRE(launch_fill(b, alias.second + kPage + 4096, 4096, 2, 100) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 1);
    }
    SECTION("the same bytes, in a range over both pages") {
        REQUIRE(cuMemsetD8Async(alias.second + kPage - 4096, 2, 3 * 4096, b) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 1);
    }
    SECTION("the same offset in another page") {
        REQUIRE(launch_fill(b, alias.second + 4096, 4096, 2, 100) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 0);
    }
    SECTION("ordered") {
        const CUevent e = event();
        REQUIRE(cuEventRecord(e, a) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(b, e, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(b, alias.second + kPage + 4096, 4096, 2, 100) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 0);
        unsigned char byte = 0;
        REQUIRE(cuMemcpyDtoH(&byte, alias.first + 4096, 1) == CUDA_SUCCESS);
        CHECK(byte == 2);
    }
}

TEST_CASE("a mapping that ends: only its own users must be done") {
    Device device;
    Alias alias;
    const CUstream s = stream();
    SECTION("in use through the other mapping") {
        REQUIRE(launch_fill(s, alias.first, 4096, 1, 100 * kMs) == CUDA_SUCCESS);
        REQUIRE(cuMemUnmap(alias.second, 2 * kPage) == CUDA_SUCCESS);
        CHECK(control::errors() + control::races() == 0);
    }
    SECTION("in use through this one") {
        REQUIRE(launch_fill(s, alias.second, 4096, 1, 100 * kMs) == CUDA_SUCCESS);
        REQUIRE(cuMemUnmap(alias.second, 2 * kPage) == CUDA_SUCCESS);
        CHECK(control::errors() + control::races() == 1);
    }
    SECTION("what happened through it is not forgotten with it") {
        REQUIRE(launch_fill(s, alias.second + kPage, 4096, 1, 100) == CUDA_SUCCESS);
        control::advance_ns(100 * kMs);
        REQUIRE(cuMemUnmap(alias.second, 2 * kPage) == CUDA_SUCCESS);
        control::forget_findings();
        REQUIRE(launch_fill(stream(), alias.first, 4096, 2, 100) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 1);
    }
}

TEST_CASE("mapped memory is reached by the devices that have the right") {
    Device device;
    if (control::get("devices") < 2) return;
    Alias alias;
    Device peer(1);
    SECTION("without") {
        REQUIRE(launch_fill(stream(), alias.first, 4096, 1, 100) == CUDA_SUCCESS);
        CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(control::errors() == 1);
        REQUIRE(cuDevicePrimaryCtxReset(1) == CUDA_SUCCESS);
    }
    SECTION("with") {
        CUmemAccessDesc access{};
        access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        REQUIRE(cuMemSetAccess(alias.first, 2 * kPage, &access, 1) == CUDA_SUCCESS);
        REQUIRE(launch_fill(stream(), alias.first, 4096, 1, 100) == CUDA_SUCCESS);
        CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::errors() == 0);
    }
}

TEST_CASE("a device that maps no memory") {
    Device device;
    REQUIRE(control::set("vmm", 0));
    int value = 1;
    REQUIRE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                 0) == CUDA_SUCCESS);
    CHECK(value == 0);
    CUdeviceptr p = 0;
    CHECK(cuMemAddressReserve(&p, kPage, 0, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(control::set("vmm", 1));
}
