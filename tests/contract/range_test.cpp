// What a program may ask about an address: answered per allocation.
#include "tests/contract/contract.h"

#include <algorithm>
#include <set>

using namespace contract;

namespace {

unsigned long long buffer_id(CUdeviceptr memory) {
    unsigned long long id = 0;
    REQUIRE(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory) == CUDA_SUCCESS);
    return id;
}

void check_range(CUdeviceptr at, CUdeviceptr base, std::size_t bytes) {
    CAPTURE(bytes, at - base);
    CUdeviceptr found = 0;
    std::size_t size = 0;
    CHECK(cuMemGetAddressRange(&found, &size, at) == CUDA_SUCCESS);
    CHECK(found == base);
    CHECK(size == bytes);
    CHECK(cuMemGetAddressRange(nullptr, &size, at) == CUDA_SUCCESS);
    CHECK(cuMemGetAddressRange(&found, nullptr, at) == CUDA_SUCCESS);
    CHECK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) == CUDA_SUCCESS);
    CHECK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at) == CUDA_SUCCESS);
    CHECK(found == base);
    CHECK(size == bytes);
}

// The answers of all calls about an address that belongs to no allocation.
void check_unknown(CUdeviceptr at, const std::string& what) {
    CAPTURE(what);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult range = cuMemGetAddressRange(&base, &size, at);
    CHECK(range != CUDA_SUCCESS);
    measured("cuMemGetAddressRange of " + what, range);
    unsigned type = 99;
    const CUresult one = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    CHECK(one != CUDA_SUCCESS);
    measured("cuPointerGetAttribute of " + what, one);
    unsigned long long id = 99;
    CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at) != CUDA_SUCCESS);
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    type = 99;
    void* data[] = {&type, &id, &size};
    const CUresult many = cuPointerGetAttributes(3, wanted, data, at);
    measured("cuPointerGetAttributes of " + what, many);
    CHECK(many == CUDA_SUCCESS);
    CHECK(type == 0);
    CHECK(id == 0);
    CHECK(size == 0);
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, pointer(at)) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    int sync = 1;
    const CUresult set = cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
    CHECK(set != CUDA_SUCCESS);
    measured("cuPointerSetAttribute of " + what, set);
    if (memory_is_mapped()) return; // an attempt to export would end that
    CUipcMemHandle handle{};
    const CUresult exported = cuIpcGetMemHandle(&handle, at);
    CHECK(exported != CUDA_SUCCESS);
    measured("cuIpcGetMemHandle of " + what, exported);
    cudaGetLastError();
}

} // namespace

TEST_CASE("base and exact size, for interior pointers too", "[range]") {
    Device device;
    const std::size_t bytes =
        GENERATE(as<std::size_t>{}, 1, 511, 512, 1000, 70000, kMiB + 1, 2 * kMiB, 9 * kMiB + 17);
    std::vector<CUdeviceptr> all;
    for (int i = 0; i < 3; ++i)
        all.push_back(driver_allocate(bytes));
    for (const CUdeviceptr memory : all) {
        check_range(memory, memory, bytes);
        check_range(memory + bytes / 2, memory, bytes);
        check_range(memory + bytes - 1, memory, bytes);
        CUdeviceptr base = 0;
        const CUresult past = cuMemGetAddressRange(&base, nullptr, memory + bytes);
        if (past == CUDA_SUCCESS) CHECK(base != memory); // a neighbour's
        if (bytes == 1000) measured("cuMemGetAddressRange one past 1000 bytes", past);
    }
    REQUIRE(cuMemFree(all[1]) == CUDA_SUCCESS);
    check_range(all[0], all[0], bytes);
    check_range(all[2], all[2], bytes);
    // Another size in the same place.
    const std::size_t less = std::max<std::size_t>(1, bytes - bytes / 8);
    all[1] = driver_allocate(less);
    check_range(all[1] + less / 2, all[1], less);
    for (const CUdeviceptr memory : all)
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
}

TEST_CASE("freed pointers answer as freed", "[range][attributes]") {
    Device device;
    check_unknown(0x100, "no address");
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 4096, 3 * kMiB, 64 * kMiB);
    const CUdeviceptr neighbour = driver_allocate(bytes);
    const CUdeviceptr memory = driver_allocate(bytes);
    REQUIRE(cuMemFree(memory) == CUDA_SUCCESS);
    const std::string size = std::to_string(bytes / kKiB) + " KiB";
    check_unknown(memory, "freed " + size);
    check_unknown(memory + bytes / 2, "the middle of freed " + size);
    check_range(neighbour, neighbour, bytes);
    REQUIRE(cuMemFree(neighbour) == CUDA_SUCCESS);
    check_unknown(neighbour, "a freed neighbour of " + size);
}

TEST_CASE("attributes of an allocation", "[attributes]") {
    Device device;
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 1000, 100000, 5 * kMiB);
    const CUdeviceptr before = driver_allocate(bytes);
    const CUdeviceptr memory = driver_allocate(bytes);
    for (const CUdeviceptr at : {memory, memory + bytes / 3}) {
        CUcontext context = nullptr;
        unsigned type = 0;
        CUdeviceptr device_pointer = 0;
        unsigned long long id = 0;
        int managed = 1;
        int ordinal = 99;
        int mapped = 0;
        CUdeviceptr start = 0;
        std::size_t size = 0;
        CUpointer_attribute wanted[] = {
            CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_BUFFER_ID,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CU_POINTER_ATTRIBUTE_MAPPED,         CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE};
        void* data[] = {&context, &type,   &device_pointer, &id,  &managed,
                        &ordinal, &mapped, &start,          &size};
        REQUIRE(cuPointerGetAttributes(9, wanted, data, at) == CUDA_SUCCESS);
        CHECK(context == device.context());
        CHECK(type == CU_MEMORYTYPE_DEVICE);
        CHECK(device_pointer == at);
        CHECK(id == buffer_id(memory));
        CHECK(managed == 0);
        CHECK(ordinal == 0);
        CHECK(mapped == 1);
        CHECK(start == memory);
        CHECK(size == bytes);

        // One by one the same.
        context = nullptr;
        CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at) == CUDA_SUCCESS);
        CHECK(context == device.context());
        device_pointer = 0;
        CHECK(cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at) ==
              CUDA_SUCCESS);
        CHECK(device_pointer == at);
        void* host = nullptr;
        measured("host pointer of device memory",
                 cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
        int legacy_ipc = -1;
        CHECK(cuPointerGetAttribute(&legacy_ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                    at) == CUDA_SUCCESS);
        measured("legacy IPC capable", legacy_ipc);
        std::size_t mapping_size = 0;
        CUdeviceptr mapping = 0;
        measured("mapping size of " + std::to_string(bytes),
                 cuPointerGetAttribute(&mapping_size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at));
        measured("  its bytes", static_cast<long long>(mapping_size));
        measured("mapping base of " + std::to_string(bytes),
                 cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at));
        measured("  the pointer is its start", mapping == memory ? 1 : 0);

        cudaPointerAttributes attributes{};
        REQUIRE(cudaPointerGetAttributes(&attributes, pointer(at)) == cudaSuccess);
        CHECK(attributes.type == cudaMemoryTypeDevice);
        CHECK(attributes.device == 0);
        CHECK(attributes.devicePointer == pointer(at));
        CHECK(attributes.hostPointer == nullptr);
    }
    int sync = 1;
    CHECK(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory) ==
          (memory_is_mapped() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS));
    CHECK(cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(memory) == CUDA_SUCCESS);
    CHECK(cuMemFree(before) == CUDA_SUCCESS);
}

TEST_CASE("each allocation has a BUFFER_ID of its own, for ever", "[attributes]") {
    Device device;
    std::set<unsigned long long> ids;
    std::vector<CUdeviceptr> live;
    for (int i = 0; i < 100; ++i) {
        live.push_back(driver_allocate(4096));
        REQUIRE(ids.insert(buffer_id(live.back())).second);
        REQUIRE(buffer_id(live.back() + 4095) == buffer_id(live.back()));
    }
    // The id of an address that was given out before, with another size or the same.
    std::set<CUdeviceptr> seen(live.begin(), live.end());
    int came_back = 0;
    for (std::size_t round = 0; round < 5000 && came_back < 50; ++round) {
        CUdeviceptr& memory = live[round % live.size()];
        REQUIRE(cuMemFree(memory) == CUDA_SUCCESS);
        if (round % 10 == 0) REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        memory = driver_allocate(4096);
        if (!seen.insert(memory).second) ++came_back;
        REQUIRE(ids.insert(buffer_id(memory)).second);
    }
    if (free_waits()) CHECK(came_back > 0); // else nothing was shown
    // Pinned and managed memory count along.
    void* pinned = nullptr;
    void* managed = nullptr;
    REQUIRE(cudaMallocHost(&pinned, 4096) == cudaSuccess);
    REQUIRE(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal) == cudaSuccess);
    CHECK(ids.insert(buffer_id(address(pinned))).second);
    CHECK(ids.insert(buffer_id(address(managed))).second);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(cudaFree(managed) == cudaSuccess);
    for (const CUdeviceptr memory : live)
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
}

TEST_CASE("functions for mapped memory do nothing to plain allocations", "[range]") {
    Device device;
    constexpr std::size_t kGranule = 2 * kMiB;
    std::vector<void*> all;
    for (const std::size_t bytes : {std::size_t{100}, 3 * kMiB, 16 * kMiB})
        all.push_back(allocate(bytes));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle own = 0;
    REQUIRE(cuMemCreate(&own, kGranule, &properties, 0) == CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (void* const memory : all) {
        fill(memory, 100, 5);
        const CUdeviceptr at = address(memory);
        const CUdeviceptr granule = at / kGranule * kGranule;
        CUmemGenericAllocationHandle handle = 0;
        CHECK(cuMemRetainAllocationHandle(&handle, memory) == CUDA_ERROR_INVALID_VALUE);
        for (const CUdeviceptr where : {at, granule}) {
            CHECK(cuMemUnmap(where, kGranule) == CUDA_ERROR_INVALID_VALUE);
            CHECK(cuMemSetAccess(where, kGranule, &access, 1) == CUDA_ERROR_INVALID_VALUE);
            CHECK(cuMemAddressFree(where, kGranule) == CUDA_ERROR_INVALID_VALUE);
            CHECK(cuMemMap(where, kGranule, 0, own, 0) == CUDA_ERROR_INVALID_VALUE);
        }
        unsigned long long flags = 7;
        CHECK(cuMemGetAccess(&flags, &access.location, at) == CUDA_SUCCESS);
        CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
        CUcontext context = nullptr;
        CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at) == CUDA_SUCCESS);
        CHECK(context == device.context());
        CHECK(holds(memory, 100, 5));
        CHECK(cudaFree(memory) == cudaSuccess);
    }
    CHECK(cuMemRelease(own) == CUDA_SUCCESS);
}
