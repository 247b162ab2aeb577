// Allocation, frees, what pointers are, bounds: as measured on an H200 with CUDA 13.
#include <cstring>

#include "fixture.h"

using namespace simtest;

namespace {

std::size_t free_bytes() {
    std::size_t bytes = 0;
    REQUIRE(cuMemGetInfo(&bytes, nullptr) == CUDA_SUCCESS);
    return bytes;
}

// Virtual time that a call took.
template <class F>
std::uint64_t time_of(F&& call) {
    const std::uint64_t before = control::now_ns();
    call();
    return control::now_ns() - before;
}

} // namespace

TEST_CASE("cuMemFree waits for all work of its context, cuMemAlloc and cuMemGetInfo do not") {
    Device device;
    const CUdeviceptr busy = alloc(4096);
    const CUdeviceptr idle = alloc(4096);
    const std::uint64_t begin = control::now_ns();
    REQUIRE(launch_fill(stream(), busy, 64, 1, 200 * kMs) == CUDA_SUCCESS);
    if (control::get("progress") != 0) {
        REQUIRE(cuMemFree(idle) == CUDA_SUCCESS);
        CHECK(control::now_ns() - begin > 20 * kMs);
        return;
    }
    CHECK(time_of([] { free_bytes(); }) < kMs);
    CHECK(time_of([] { alloc(1 << 20); }) < kMs);
    CHECK(time_of([=] { REQUIRE(cuMemFree(idle) == CUDA_SUCCESS); }) > 199 * kMs);
}

TEST_CASE("an event recorded before cuMemFree is complete right after it") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream s = stream();
    const CUevent e = event();
    REQUIRE(launch_fill(s, p, 64, 1, 200 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(e, s) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(alloc(512)) == CUDA_SUCCESS);
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
}

TEST_CASE("a stream-ordered pointer is freed without a wait") {
    Device device;
    const CUstream s = stream();
    CUdeviceptr p = 0;
    REQUIRE(cuMemAllocAsync(&p, 4096, s) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
    const CUdeviceptr busy = alloc(4096);
    REQUIRE(launch_fill(stream(), busy, 64, 1, 200 * kMs) == CUDA_SUCCESS);
    const std::uint64_t took = time_of([=] { REQUIRE(cuMemFree(p) == CUDA_SUCCESS); });
    if (control::get("progress") == 0) {
        CHECK(took < kMs);
    }
    CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("arguments of cuMemAlloc and cuMemFree") {
    Device device;
    CUdeviceptr p = 0;
    CHECK(cuMemAlloc(&p, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc(nullptr, 512) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(0) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&p, std::size_t{1} << 50) == CUDA_ERROR_OUT_OF_MEMORY);
    p = alloc(1000);
    CHECK(p % 512 == 0);
    CHECK(cuMemFree(p + 256) == CUDA_ERROR_INVALID_VALUE);
    int local = 0;
    CHECK(cuMemFree(reinterpret_cast<CUdeviceptr>(&local)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
    cuCtxSetCurrent(nullptr);
    CHECK(cuMemAlloc(&p, 512) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(0) == CUDA_SUCCESS);
    CHECK(cuMemGetInfo(nullptr, nullptr) == CUDA_ERROR_INVALID_CONTEXT);
    cuCtxSetCurrent(device.ctx());
    p = alloc(512);
    cuCtxSetCurrent(nullptr);
    CHECK(cuMemFree(p + 8) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(p) == CUDA_SUCCESS);
    cuCtxSetCurrent(device.ctx());
}

TEST_CASE("ranges are exact, buffer ids unique, freed pointers unknown") {
    Device device;
    const CUdeviceptr p = alloc(1000);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    REQUIRE(cuMemGetAddressRange(&base, &size, p + 999) == CUDA_SUCCESS);
    CHECK(base == p);
    CHECK(size == 1000);
    CHECK(cuMemGetAddressRange(&base, nullptr, p + 1000) != CUDA_SUCCESS);
    unsigned long long first = 0;
    unsigned long long second = 0;
    REQUIRE(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, p) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, p) ==
          CUDA_ERROR_INVALID_VALUE);
    unsigned type = 77;
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void* data[] = {&type};
    CHECK(cuPointerGetAttributes(1, what, data, p) == CUDA_SUCCESS);
    CHECK(type == 0);
    const CUdeviceptr again = alloc(1000);
    CHECK(again == p);
    REQUIRE(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, again) == CUDA_SUCCESS);
    CHECK(second != first);
}

TEST_CASE("memory is counted in granules of 2 MiB") {
    Device device;
    const std::size_t before = free_bytes();
    const CUdeviceptr a = alloc(1 << 20);
    CHECK(before - free_bytes() == 2U << 20);
    const CUdeviceptr b = alloc(1 << 20);
    CHECK(before - free_bytes() == 2U << 20);
    const CUdeviceptr c = alloc(3 << 20);
    CHECK(before - free_bytes() == 6U << 20);
    CHECK(c % (2 << 20) == 0);
    for (const CUdeviceptr p : {a, b, c}) {
        REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    }
    CHECK(free_bytes() == before);
    CHECK(alloc(3 << 20) == c);
}

TEST_CASE("the memory limit holds and running out is not sticky") {
    Device device;
    control::set("memory_mb", 16);
    CUdeviceptr p = 0;
    CHECK(cuMemAlloc(&p, 16U << 20) == CUDA_SUCCESS);
    CUdeviceptr q = 0;
    CHECK(cuMemAlloc(&q, 512) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&q, 512) == CUDA_SUCCESS);
    control::set("memory_mb", 4096);
}

TEST_CASE("copies and fills stay inside their allocation") {
    Device device;
    const CUdeviceptr p = alloc(1000);
    const CUdeviceptr other = alloc(4096);
    std::vector<char> host(4096);
    CHECK(cuMemsetD8(p, 0, 1000) == CUDA_SUCCESS);
    CHECK(cuMemsetD8(p, 0, 1001) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyHtoD(p, host.data(), 1001) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyDtoH(host.data(), p + 1, 1000) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyDtoD(other, p, 1001) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpy(other, p, 1001) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemsetD8Async(p + 999, 0, 2, stream()) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(cuMemsetD8(p, 0, 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyHtoD(p, host.data(), 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(control::errors() == 0);
}

TEST_CASE("bytes travel") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUdeviceptr q = alloc(4096);
    std::vector<unsigned char> in(4096);
    for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<unsigned char>(i * 7);
    }
    std::vector<unsigned char> out(4096);
    REQUIRE(cuMemcpyHtoD(p, in.data(), 4096) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoD(q, p, 4096) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoH(out.data(), q, 4096) == CUDA_SUCCESS);
    CHECK(in == out);
    REQUIRE(cuMemsetD32(p, 0x01020304, 1024) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoH(out.data(), p, 4096) == CUDA_SUCCESS);
    CHECK(out[0] == 4);
    CHECK(out[4095] == 1);
    SECTION("a pageable source may change right after an asynchronous copy") {
        const CUstream s = stream();
        REQUIRE(cuMemcpyHtoDAsync(p, in.data(), 4096, s) == CUDA_SUCCESS);
        std::memset(in.data(), 0, 4096);
        REQUIRE(cuMemcpyDtoHAsync(out.data(), p, 4096, s) == CUDA_SUCCESS);
        CHECK(out[1] == 7);
    }
    SECTION("two dimensions") {
        CUDA_MEMCPY2D c{};
        c.srcMemoryType = CU_MEMORYTYPE_HOST;
        c.srcHost = in.data();
        c.srcPitch = 64;
        c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        c.dstDevice = q;
        c.dstPitch = 128;
        c.WidthInBytes = 32;
        c.Height = 4;
        REQUIRE(cuMemcpy2D(&c) == CUDA_SUCCESS);
        REQUIRE(cuMemcpyDtoH(out.data(), q, 4096) == CUDA_SUCCESS);
        CHECK(out[128 + 5] == in[64 + 5]);
        c.Height = 33;
        CHECK(cuMemcpy2D(&c) == CUDA_ERROR_INVALID_VALUE);
    }
    CHECK(control::races() == 0);
}

TEST_CASE("pinned, registered and managed memory") {
    Device device;
    void* pinned = nullptr;
    REQUIRE(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
    unsigned flags = 0;
    REQUIRE(cuMemHostGetFlags(&flags, pinned) == CUDA_SUCCESS);
    CHECK(flags == CU_MEMHOSTALLOC_PORTABLE);
    CUdeviceptr p = 0;
    REQUIRE(cuMemHostGetDevicePointer(&p, pinned, 0) == CUDA_SUCCESS);
    REQUIRE(launch_fill(stream(), p, 4096, 5, 1000) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(static_cast<char*>(pinned)[4095] == 5);
    CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeHost(pinned) == CUDA_SUCCESS);
    std::vector<char> own(8192);
    REQUIRE(cuMemHostRegister(own.data(), own.size(), 0) == CUDA_SUCCESS);
    CHECK(cuMemHostRegister(own.data() + 1, 16, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(cuMemHostUnregister(own.data()) == CUDA_SUCCESS);
    CHECK(cuMemHostUnregister(own.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    REQUIRE(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    int managed = 0;
    REQUIRE(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p) == CUDA_SUCCESS);
    CHECK(managed == 1);
    CHECK(cuMemFree(p) == CUDA_SUCCESS);
}

TEST_CASE("a kernel that touches freed memory faults, and the error sticks") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUdeviceptr q = alloc(4096);
    REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    REQUIRE(launch_fill(stream(), p, 4096, 1, 1000) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(control::errors() == 1);
    CUdeviceptr r = 0;
    std::size_t bytes = 0;
    CHECK(cuMemAlloc(&r, 512) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuMemFree(q) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuMemGetInfo(&bytes, nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a fault on request") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    control::set("fault", 2);
    REQUIRE(launch_fill(nullptr, p, 64, 1, 1000) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(launch_fill(nullptr, p, 64, 1, 1000) == CUDA_SUCCESS);
    CHECK(cuMemFree(p) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(control::errors() == 0);
}

TEST_CASE("a segment freed under live blocks is an error") {
    Device device;
    const CUdeviceptr p = alloc(4 << 20);
    control::mark_live(reinterpret_cast<void*>(p + 512), 512);
    REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(control::errors() == 1);
    control::unmark_live(reinterpret_cast<void*>(p + 512));
    REQUIRE(cuMemFree(alloc(4 << 20)) == CUDA_SUCCESS);
    CHECK(control::errors() == 1);
}

TEST_CASE("injected failures and call counts") {
    Device device;
    control::reset_calls();
    control::fail("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY, 2);
    CUdeviceptr p = 0;
    CHECK(cuMemAlloc(&p, 512) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&p, 512) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&p, 512) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&p, 512) == CUDA_SUCCESS);
    CHECK(control::calls("cuMemAlloc_v2") == 4);
    CHECK(control::calls("cuMemFree_v2") == 0);
}

TEST_CASE("stream-ordered memory") {
    Device device;
    const CUstream s = stream();
    CUdeviceptr p = 0;
    CUmemoryPool pool = nullptr;
    REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    cuuint64_t used = 0;
    REQUIRE(cuMemAllocAsync(&p, 5000, s) == CUDA_SUCCESS);
    REQUIRE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS);
    CHECK(used == 5000);
    REQUIRE(launch_fill(s, p, 5000, 3, 100 * kMs) == CUDA_SUCCESS);
    SECTION("freed behind its last use") {
        REQUIRE(cuMemFreeAsync(p, s) == CUDA_SUCCESS);
        CHECK(cuMemFreeAsync(p, s) == CUDA_ERROR_INVALID_VALUE);
        REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
        REQUIRE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ==
                CUDA_SUCCESS);
        CHECK(used == 0);
        CHECK(control::races() == 0);
    }
    SECTION("freed on a stream that is not behind its last use") {
        REQUIRE(cuMemFreeAsync(p, stream()) == CUDA_SUCCESS);
        cuCtxSynchronize();
        CHECK(control::races() + control::errors() >= 1);
    }
    SECTION("queries no longer know it once its free is submitted") {
        REQUIRE(cuMemFreeAsync(p, s) == CUDA_SUCCESS);
        CHECK(cuMemGetAddressRange(nullptr, nullptr, p) == CUDA_ERROR_NOT_FOUND);
        REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
    }
    SECTION("freed by cuMemFree while in use") {
        REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
        CHECK(control::errors() + control::races() >= 1);
    }
}

TEST_CASE("memory of cuMemAlloc may be freed in stream order") {
    Device device;
    const CUstream s = stream();
    const CUdeviceptr p = alloc(4096);
    REQUIRE(launch_fill(s, p, 4096, 3, 100 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(p, s) == CUDA_SUCCESS);
    if (control::get("progress") == 0) {
        CHECK(cuMemGetAddressRange(nullptr, nullptr, p) == CUDA_SUCCESS);
    }
    REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
    CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeAsync(p + 8, s) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFreeAsync(0, s) == CUDA_SUCCESS);
    CHECK(control::races() + control::errors() == 0);
}

TEST_CASE("arrays take up memory until they are destroyed") {
    Device device;
    std::size_t before = 0;
    std::size_t now = 0;
    REQUIRE(cuMemGetInfo(&before, nullptr) == CUDA_SUCCESS);
    CUDA_ARRAY3D_DESCRIPTOR wanted{};
    wanted.Width = 1024;
    wanted.Height = 1024;
    wanted.Depth = 4;
    wanted.Format = CU_AD_FORMAT_FLOAT;
    wanted.NumChannels = 1;
    CUarray array = nullptr;
    REQUIRE(cuArray3DCreate(&array, &wanted) == CUDA_SUCCESS);
    REQUIRE(cuMemGetInfo(&now, nullptr) == CUDA_SUCCESS);
    CHECK(before - now == std::size_t{16} << 20);
    CUmipmappedArray levels = nullptr;
    REQUIRE(cuMipmappedArrayCreate(&levels, &wanted, 2) == CUDA_SUCCESS);
    CHECK(cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(array)) ==
          CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuMipmappedArrayDestroy(levels) == CUDA_SUCCESS);
    CHECK(cuArrayDestroy(array) == CUDA_SUCCESS);
    CHECK(cuArrayDestroy(array) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(cuMemGetInfo(&now, nullptr) == CUDA_SUCCESS);
    CHECK(before == now);
    wanted.Width = std::size_t{1} << 40;
    CHECK(cuArray3DCreate(&array, &wanted) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("allocations of nothing") {
    Device device;
    CUdeviceptr p = 7;
    CHECK(cuMemAllocAsync(&p, 0, stream()) == CUDA_SUCCESS);
    CHECK(p == 0);
    void* host = &p;
    CHECK(cuMemHostAlloc(&host, 0, 0) == CUDA_SUCCESS);
    CHECK(host == nullptr);
}

TEST_CASE("the release threshold is remembered") {
    Device device;
    CUmemoryPool pool = nullptr;
    REQUIRE(cuDeviceGetMemPool(&pool, 0) == CUDA_SUCCESS);
    cuuint64_t threshold = UINT64_MAX;
    REQUIRE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ==
            CUDA_SUCCESS);
    threshold = 0;
    REQUIRE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ==
            CUDA_SUCCESS);
    CHECK(threshold == UINT64_MAX);
    CHECK(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
}
