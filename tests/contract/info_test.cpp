// cuMemGetInfo: what a program may count on.
#include "tests/contract/contract.h"

#include <algorithm>

using namespace contract;

namespace {

// Allocates all that is reported free. The driver itself may need some of it for page tables: the
// first of these margins that works is returned with the memory.
std::size_t allocate_all_that_is_free(void** memory) {
    for (const std::size_t margin :
         {std::size_t{0}, 2 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, kGiB}) {
        const std::size_t free_bytes = free_memory();
        if (free_bytes <= margin) break;
        if (cudaMalloc(memory, free_bytes - margin) == cudaSuccess) return margin;
        CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    }
    *memory = nullptr;
    return SIZE_MAX;
}

void churn(std::mt19937& random) {
    std::vector<void*> live;
    for (int i = 0; i < 400; ++i) {
        if (live.size() > 60) {
            const std::size_t victim = random() % live.size();
            REQUIRE(cudaFree(live[victim]) == cudaSuccess);
            live[victim] = live.back();
            live.pop_back();
        }
        live.push_back(allocate(1 + random() % (i % 3 == 0 ? 12 * kMiB : 300 * kKiB)));
    }
    for (void* const memory : live)
        REQUIRE(cudaFree(memory) == cudaSuccess);
}

} // namespace

TEST_CASE("either argument of cuMemGetInfo may be null", "[info]") {
    Device device;
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    REQUIRE(cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS);
    CHECK(total > 0);
    CHECK(free_bytes <= total);
    std::size_t alone = 0;
    CHECK(cuMemGetInfo(nullptr, &alone) == CUDA_SUCCESS);
    CHECK(alone == total);
    alone = 0;
    CHECK(cuMemGetInfo(&alone, nullptr) == CUDA_SUCCESS);
    CHECK(alone == free_bytes);
    measured("cuMemGetInfo(null, null)", cuMemGetInfo(nullptr, nullptr));
    alone = 0;
    CHECK(cudaMemGetInfo(&alone, nullptr) == cudaSuccess);
    CHECK(alone == free_bytes);
    CHECK(cudaMemGetInfo(nullptr, &alone) == cudaSuccess);
    CHECK(alone == total);
    cudaGetLastError();
}

TEST_CASE("free memory falls by what is allocated and comes back", "[info]") {
    Device device;
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 64 * kMiB, 200 * kMiB + 1);
    for (int round = 0; round < 3; ++round) {
        CAPTURE(bytes, round);
        const std::size_t before = free_memory();
        void* const memory = allocate(bytes);
        const std::size_t during = free_memory();
        CHECK(during + bytes <= before + kSlackOfFree);
        CHECK(before <= during + bytes + kSlackOfFree);
        REQUIRE(cudaFree(memory) == cudaSuccess);
        const std::size_t after = free_memory();
        CHECK(after + kSlackOfFree >= before);
        CHECK(after <= before + kSlackOfFree);
    }
}

TEST_CASE("small blocks come back to free memory too", "[info]") {
    Device device;
    const std::size_t before = free_memory();
    std::vector<void*> all;
    for (int i = 0; i < 1000; ++i)
        all.push_back(allocate(100 * kKiB));
    CHECK(free_memory() + 1000 * 100 * kKiB <= before + kSlackOfFree);
    for (void* const memory : all)
        REQUIRE(cudaFree(memory) == cudaSuccess);
    CHECK(free_memory() + kSlackOfFree >= before);
}

// Freed memory counts as free at once, also while the work that used it is on its way.
TEST_CASE("memory freed behind queued work counts as free", "[info]") {
    Device device;
    Kernels kernels;
    Stream stream;
    void* const result = allocate(64 * kKiB);
    const std::size_t before = free_memory();
    void* const memory = allocate(100 * kMiB);
    kernels.late_copy(result, memory, 64 * kKiB, 20, stream);
    REQUIRE(cudaFree(memory) == cudaSuccess);
    CHECK(free_memory() + kSlackOfFree >= before);
    CHECK(cudaFree(result) == cudaSuccess);
}

// Alone, like all cases that fill the device: what stays cached afterwards is not there for the
// processes of other cases.
ALONE_TEST_CASE("all that is free can be allocated after a churn, again and again", "[info]") {
    Device device;
    std::mt19937 random = random_source("all that is free");
    const std::size_t before = free_memory();
    std::size_t margin = 0;
    for (int round = 0; round < 4; ++round) {
        CAPTURE(round);
        churn(random);
        CHECK(free_memory() + 2 * kSlackOfFree >= before);
        void* memory = nullptr;
        margin = std::max(margin, allocate_all_that_is_free(&memory));
        REQUIRE(memory != nullptr);
        fill(memory, 4096, 5);
        void* one_more = nullptr;
        const std::size_t left = free_memory();
        if (cudaMalloc(&one_more, left + kGiB) != cudaErrorMemoryAllocation) FAIL("too much");
        cudaGetLastError();
        CHECK(holds(memory, 4096, 5));
        REQUIRE(cudaFree(memory) == cudaSuccess);
    }
    measured("MiB of free memory that could not be allocated",
             static_cast<long long>(margin / kMiB));
    CHECK(free_memory() + 2 * kSlackOfFree >= before);
}

// Alone, since the size of what earlier cases left cached decides what the live blocks hold on to.
ALONE_TEST_CASE("all that is free can be allocated with blocks still live", "[info]") {
    Device device;
    std::vector<void*> live;
    std::vector<void*> others;
    for (int i = 0; i < 40; ++i) {
        (i % 2 == 0 ? live : others).push_back(allocate(5 * kMiB));
        if (i % 2 == 0) fill(live.back(), 4096, static_cast<std::uint32_t>(i));
    }
    for (void* const memory : others)
        REQUIRE(cudaFree(memory) == cudaSuccess);
    void* memory = nullptr;
    const std::size_t margin = allocate_all_that_is_free(&memory);
    REQUIRE(memory != nullptr);
    measured("MiB of free memory that could not be allocated beside live blocks",
             static_cast<long long>(margin / kMiB));
    REQUIRE(cudaFree(memory) == cudaSuccess);
    for (std::size_t i = 0; i < live.size(); ++i) {
        CHECK(holds(live[i], 4096, static_cast<std::uint32_t>(2 * i)));
        REQUIRE(cudaFree(live[i]) == cudaSuccess);
    }
}

// A large block is freed, small ones follow: how much of it do they keep from being free?
ALONE_TEST_CASE("small blocks after a large one", "[info]") {
    Device device;
    const std::size_t before = free_memory();
    const std::size_t large = before / 2;
    void* const first = allocate(large);
    REQUIRE(cudaFree(first) == cudaSuccess);
    std::vector<void*> live;
    for (int i = 0; i < 8; ++i)
        live.push_back(allocate(5 * kMiB));
    const std::size_t held = before - std::min(before, free_memory());
    measured("percent of the large block that 40 MiB of live blocks hold",
             static_cast<long long>(100 * held / large));
    void* second = nullptr; // whatever is reported, the program may have it
    const std::size_t margin = allocate_all_that_is_free(&second);
    CHECK(margin != SIZE_MAX);
    CHECK(cudaFree(second) == cudaSuccess);
    for (void* const memory : live)
        CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(free_memory() + kSlackOfFree >= before);
}

// What cudaFree took back is there for every other kind of allocation, not only for cudaMalloc.
ALONE_TEST_CASE("freed memory is there for other kinds of allocation", "[info]") {
    Device device;
    Stream stream;
    enum class Kind { ordered, from_pool, pitched, physical, context };
    for (const Kind kind :
         {Kind::pitched, Kind::physical, Kind::ordered, Kind::from_pool, Kind::context}) {
        CAPTURE(static_cast<int>(kind));
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        const std::size_t most = free_memory() / 10 * 9;
        REQUIRE(cudaFree(allocate(most)) == cudaSuccess);
        const std::size_t half = most / 2 / (2 * kMiB) * (2 * kMiB);
        void* memory = nullptr;
        switch (kind) {
        case Kind::ordered:
            CHECK(cudaMallocAsync(&memory, half, stream) == cudaSuccess);
            CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
            break;
        case Kind::from_pool: {
            cudaMemPoolProps properties{};
            properties.allocType = cudaMemAllocationTypePinned;
            properties.location.type = cudaMemLocationTypeDevice;
            cudaMemPool_t pool = nullptr;
            REQUIRE(cudaMemPoolCreate(&pool, &properties) == cudaSuccess);
            CHECK(cudaMallocFromPoolAsync(&memory, half, pool, stream) == cudaSuccess);
            CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
            CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
            CHECK(cudaMemPoolDestroy(pool) == cudaSuccess);
            break;
        }
        case Kind::pitched: {
            std::size_t pitch = 0;
            CHECK(cudaMallocPitch(&memory, &pitch, 64 * kKiB, half / (64 * kKiB)) == cudaSuccess);
            CHECK(cudaFree(memory) == cudaSuccess);
            break;
        }
        case Kind::physical: {
            CUmemAllocationProp properties{};
            properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            CUmemGenericAllocationHandle handle = 0;
            const CUresult created = cuMemCreate(&handle, half, &properties, 0);
            CHECK(created == CUDA_SUCCESS);
            if (created == CUDA_SUCCESS) CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
            break;
        }
        case Kind::context: {
            CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
            CHECK(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
#else
            CHECK(cuCtxCreate(&context, 0, 0) == CUDA_SUCCESS);
#endif
            if (context != nullptr) CHECK(cuCtxDestroy(context) == CUDA_SUCCESS);
            REQUIRE(cuCtxSetCurrent(device.context()) == CUDA_SUCCESS);
            break;
        }
        }
        cudaGetLastError();
    }
}
