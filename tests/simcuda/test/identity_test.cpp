// What tells streams apart, and which memory is the host's and the device's at once.
#include <set>
#include <thread>

#include "fixture.h"

using namespace simtest;

namespace {

unsigned long long id_of(CUstream s) {
    unsigned long long id = 0;
    REQUIRE(cuStreamGetId(s, &id) == CUDA_SUCCESS);
    return id;
}

} // namespace

TEST_CASE("every stream has an id that no other ever has") {
    Device device;
    const CUstream created = stream();
    std::set<unsigned long long> ids{id_of(nullptr), id_of(CU_STREAM_PER_THREAD), id_of(created)};
    CHECK(ids.size() == 3);
    CHECK(id_of(CU_STREAM_LEGACY) == id_of(nullptr));
    CHECK(id_of(created) == id_of(created));
    SECTION("another thread's default stream is another stream, the legacy one is not") {
        unsigned long long legacy = 0;
        unsigned long long own = 0;
        std::thread([&] {
            cuCtxSetCurrent(device.ctx());
            cuStreamGetId(nullptr, &legacy);
            cuStreamGetId(CU_STREAM_PER_THREAD, &own);
        }).join();
        CHECK(legacy == id_of(nullptr));
        CHECK(ids.insert(own).second);
    }
    SECTION("each context has its own default streams") {
        Device second(1);
        CHECK(ids.insert(id_of(nullptr)).second);
        CHECK(ids.insert(id_of(CU_STREAM_PER_THREAD)).second);
    }
    SECTION("a handle that comes back is another stream") {
        REQUIRE(cuStreamDestroy(created) == CUDA_SUCCESS);
        const CUstream again = stream();
        CHECK(again == created);
        CHECK(ids.insert(id_of(again)).second);
    }
}

TEST_CASE("pinned memory has a device address, device memory has none of the host's") {
    Device device;
    void* pinned = nullptr;
    REQUIRE(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS);
    CUdeviceptr p = 0;
    REQUIRE(cuMemHostGetDevicePointer(&p, static_cast<char*>(pinned) + 64, 0) == CUDA_SUCCESS);
    REQUIRE(launch_fill(nullptr, p, 64, 5, 1000) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    control::host_access(pinned, 4096, false);
    CHECK(static_cast<char*>(pinned)[64] == 5);
    CHECK(control::races() == 0);
    const CUdeviceptr memory = alloc(4096);
    int on_stack = 0;
    CHECK(cuMemHostGetDevicePointer(&p, reinterpret_cast<void*>(memory), 0) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemHostGetDevicePointer(&p, &on_stack, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemHostGetDevicePointer(&p, pinned, 1) == CUDA_ERROR_INVALID_VALUE);
    SECTION("a host that does not wait reads too early") {
        REQUIRE(cuMemHostGetDevicePointer(&p, pinned, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(stream(), p, 64, 6, kMs) == CUDA_SUCCESS);
        control::advance_ns(10 * kMs);
        control::host_access(pinned, 64, false);
        CHECK(control::races() == 1);
    }
    REQUIRE(cuMemFreeHost(pinned) == CUDA_SUCCESS);
}

TEST_CASE("a stream that waits for a value of the host comes behind what the host knew") {
    Device device;
    void* memory = nullptr;
    REQUIRE(cuMemAllocHost(&memory, 4096) == CUDA_SUCCESS);
    auto* const flag = static_cast<volatile unsigned*>(memory);
    *flag = 0;
    const CUdeviceptr p = alloc(1 << 20);
    const CUstream first = stream();
    const CUstream waiting = stream();
    const bool knew = GENERATE(false, true);
    CAPTURE(knew);
    REQUIRE(launch_sum(first, p + 8192, p, 4096, 100 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitValue32(waiting, reinterpret_cast<CUdeviceptr>(memory), 1,
                                CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    REQUIRE(launch_fill(waiting, p, 4096, 1, 1000) == CUDA_SUCCESS);
    if (knew) {
        REQUIRE(cuStreamSynchronize(first) == CUDA_SUCCESS);
    }
    *flag = 1;
    control::host_access(memory, sizeof *flag, true);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == (knew ? 0 : 1));
    REQUIRE(cuMemFreeHost(memory) == CUDA_SUCCESS);
}

TEST_CASE("managed memory is one address for host and device") {
    Device device;
    CUdeviceptr p = 0;
    REQUIRE(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    auto* const host = reinterpret_cast<unsigned char*>(p);
    host[0] = 3;
    control::host_access(host, 1, true);
    const CUdeviceptr out = alloc(4);
    REQUIRE(launch_sum(nullptr, out, p, 1, 1000) == CUDA_SUCCESS);
    unsigned sum = 0;
    REQUIRE(cuMemcpyDtoH(&sum, out, 4) == CUDA_SUCCESS);
    CHECK(sum == 3);
    int managed = 0;
    REQUIRE(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p) == CUDA_SUCCESS);
    CHECK(managed == 1);
    CHECK(control::races() == 0);
    // Its free waits for the work that uses it.
    REQUIRE(launch_fill(stream(), p, 4096, 1, 100 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(control::errors() == 0);
}

TEST_CASE("a default pool keeps to its own device until it is told otherwise") {
    Device device;
    Device second(1);
    CUmemoryPool pool = nullptr;
    REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(device.ctx()) == CUDA_SUCCESS);
    const CUstream s = stream();
    CUdeviceptr p = 0;
    REQUIRE(cuMemAllocAsync(&p, 4096, s) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(second.ctx()) == CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 1;
    SECTION("peer access does not open it") {
        REQUIRE(cuCtxEnablePeerAccess(device.ctx(), 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(nullptr, p, 64, 1, 1000) == CUDA_SUCCESS);
        CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(control::errors() == 1);
    }
    SECTION("access does, for what it handed out before as well") {
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        REQUIRE(cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS);
        CUmemAccess_flags flags{};
        REQUIRE(cuMemPoolGetAccess(&flags, pool, &access.location) == CUDA_SUCCESS);
        CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        REQUIRE(launch_fill(nullptr, p, 64, 1, 1000) == CUDA_SUCCESS);
        CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        REQUIRE(cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS);
    }
    SECTION("what is refused") {
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        access.location.id = 0;
        CHECK(cuMemPoolSetAccess(pool, &access, 1) == CUDA_ERROR_INVALID_DEVICE);
        access.location.id = 7;
        CHECK(cuMemPoolSetAccess(pool, &access, 1) == CUDA_ERROR_INVALID_VALUE);
        int handle = 0;
        CHECK(cuMemPoolExportToShareableHandle(&handle, pool,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                               0) == CUDA_ERROR_INVALID_VALUE);
        CUmemPoolPtrExportData data{};
        CHECK(cuMemPoolExportPointer(&data, p) == CUDA_ERROR_INVALID_VALUE);
        cuuint64_t high = 1;
        CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high) ==
              CUDA_ERROR_INVALID_VALUE);
        high = 0;
        CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high) == CUDA_SUCCESS);
        CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &high) ==
              CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
    }
    // The memory is the pool's and outlives contexts.
    REQUIRE(cuCtxSetCurrent(device.ctx()) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(p, s) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
}
