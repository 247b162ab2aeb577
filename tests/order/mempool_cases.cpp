// The default memory pool as a program sees it while stream-ordered calls are served from ours, and
// what hands a device back to the driver's pool.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <vector>

namespace order {

namespace {

namespace control = simcuda::control;

constexpr std::size_t kMiB = std::size_t{1} << 20;

Byte* allocate_on(cudaStream_t stream, std::size_t bytes = kBytes) {
    void* block = nullptr;
    ORDER_CHECK(cudaMallocAsync(&block, bytes, stream));
    return static_cast<Byte*>(block);
}

void free_on(cudaStream_t stream, Byte* block) {
    ORDER_CHECK(cudaFreeAsync(block, stream));
}

cudaMemPool_t default_pool(int device = 0) {
    cudaMemPool_t pool = nullptr;
    ORDER_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

cudaMemPool_t explicit_pool() {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool = nullptr;
    ORDER_CHECK(cudaMemPoolCreate(&pool, &properties));
    return pool;
}

std::uint64_t figure(cudaMemPoolAttr which) {
    cuuint64_t value = 0;
    ORDER_CHECK(cudaMemPoolGetAttribute(default_pool(), which, &value));
    return value;
}

/// Whether the driver is asked for the next stream-ordered allocation.
bool driver_serves(cudaStream_t stream) {
    const std::uint64_t before = control::calls("cuMemAllocAsync");
    Byte* const block = allocate_on(stream);
    ORDER_CHECK(fill(stream, block, kNew, kBytes, 0));
    free_on(stream, block);
    return control::calls("cuMemAllocAsync") != before;
}

void figures() {
    const cudaStream_t stream = make_stream();
    Byte* const plain = allocate(5 * kMiB);
    ORDER_REQUIRE(!driver_serves(stream), kNotServed);
    drain();
    cuuint64_t zero = 0;
    ORDER_CHECK(cudaMemPoolSetAttribute(default_pool(), cudaMemPoolAttrUsedMemHigh, &zero));
    const std::uint64_t none = figure(cudaMemPoolAttrReservedMemCurrent);
    ORDER_REQUIRE(figure(cudaMemPoolAttrUsedMemCurrent) == 0, kWrongContent);
    Byte* const first = allocate_on(stream, 6 * kMiB);
    Byte* const second = allocate_on(stream, 10 * kMiB);
    ORDER_REQUIRE(figure(cudaMemPoolAttrUsedMemCurrent) == 16 * kMiB, kWrongContent);
    ORDER_REQUIRE(figure(cudaMemPoolAttrReservedMemCurrent) >= none + 16 * kMiB, kWrongContent);
    free_on(stream, first);
    release(second);
    drain();
    ORDER_REQUIRE(figure(cudaMemPoolAttrUsedMemCurrent) == 0, kWrongContent);
    ORDER_REQUIRE(figure(cudaMemPoolAttrUsedMemHigh) == 16 * kMiB, kWrongContent);
    ORDER_REQUIRE(figure(cudaMemPoolAttrReservedMemHigh) >= 16 * kMiB, kWrongContent);
    ORDER_CHECK(cudaMemPoolTrimTo(default_pool(), 0));
    ORDER_REQUIRE(figure(cudaMemPoolAttrReservedMemCurrent) <= none, kWrongContent);
    for (const cudaMemPoolAttr high : {cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrReservedMemHigh})
        ORDER_CHECK(cudaMemPoolSetAttribute(default_pool(), high, &zero));
    ORDER_REQUIRE(figure(cudaMemPoolAttrUsedMemHigh) == 0, kWrongContent);
    ORDER_REQUIRE(figure(cudaMemPoolAttrReservedMemHigh) <= none, kWrongContent);
    release(plain);
}

/// Trimming keeps as much as it is told to, and what is in use.
void trim() {
    const cudaStream_t stream = make_stream();
    std::vector<Byte*> blocks(8);
    for (Byte*& block : blocks)
        block = allocate_on(stream);
    for (std::size_t i = 1; i < blocks.size(); ++i)
        free_on(stream, blocks[i]);
    drain();
    ORDER_REQUIRE(figure(cudaMemPoolAttrReservedMemCurrent) == 8 * kBytes, kWrongContent);
    ORDER_CHECK(cudaMemPoolTrimTo(default_pool(), 5 * kBytes));
    ORDER_REQUIRE(figure(cudaMemPoolAttrReservedMemCurrent) == 5 * kBytes, kWrongContent);
    ORDER_CHECK(cudaMemPoolTrimTo(default_pool(), 0));
    ORDER_REQUIRE(figure(cudaMemPoolAttrReservedMemCurrent) == kBytes, kWrongContent);
    ORDER_CHECK(fill(stream, blocks[0], kNew, kBytes, 0));
    free_on(stream, blocks[0]);
    drain();
}

/// Without the permission a block that another stream freed is not taken although it is done.
void opportunistic(bool allowed) {
    const cudaStream_t first = make_stream();
    const cudaStream_t second = make_stream();
    int value = allowed ? 1 : 0;
    ORDER_CHECK(
        cudaMemPoolSetAttribute(default_pool(), cudaMemPoolReuseAllowOpportunistic, &value));
    Byte* const block = allocate_on(first);
    ORDER_CHECK(fill(first, block, kOld, kBytes, 0));
    free_on(first, block);
    drain();
    Byte* const next = allocate_on(second);
    ORDER_REQUIRE((next == block) == allowed, kNotReused);
    ORDER_CHECK(fill(second, next, kNew, kBytes, 0));
    drain();
}

/// The other device may use what was allocated before and what comes from now on, as it may
/// natively, without peer access of its own; which it may still ask for.
void set_access(bool peer_lives) {
    const cudaStream_t stream = make_stream();
    Byte* const block = allocate_on(stream);
    ORDER_REQUIRE(control::calls("cuMemAllocAsync") == 0, kNotServed);
    if (peer_lives) {
        ORDER_CHECK(cudaSetDevice(1));
        ORDER_CHECK(cudaFree(nullptr));
        ORDER_CHECK(cudaSetDevice(0));
    }
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = 1;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    control::fail("cuMemPoolSetAccess", 1, CUDA_ERROR_INVALID_DEVICE);
    ORDER_REQUIRE(cudaMemPoolSetAccess(default_pool(), &access, 1) != cudaSuccess, kCallFailed);
    (void)cudaGetLastError();
    ORDER_REQUIRE(driver_serves(stream) == peer_lives, kNotServed); // two contexts: the driver's
    ORDER_CHECK(cudaMemPoolSetAccess(default_pool(), &access, 1));
    ORDER_REQUIRE(driver_serves(stream), kNotServed);
    drain();
    ORDER_CHECK(cudaSetDevice(1));
    const cudaStream_t far = make_stream();
    ORDER_CHECK(fill(far, block, kNew, kBytes, 0));
    drain();
    ORDER_CHECK(cudaDeviceEnablePeerAccess(0, 0));
    ORDER_REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled,
                  kCallFailed);
    (void)cudaGetLastError();
    ORDER_CHECK(cudaSetDevice(0));
    free_on(stream, block);
    drain();
}

/// What was served cannot be made reachable: the program is told.
void set_access_in_vain() {
    const cudaStream_t stream = make_stream();
    free_on(stream, allocate_on(stream));
    unsigned flags = 0;
    int active = 0;
    CUcontext other = nullptr;
    ORDER_CHECK(cuDevicePrimaryCtxRetain(&other, 1));
    ORDER_CHECK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = 1;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    control::fail("cuCtxEnablePeerAccess", 1, CUDA_ERROR_TOO_MANY_PEERS);
    ORDER_REQUIRE(cudaMemPoolSetAccess(default_pool(), &access, 1) == cudaErrorTooManyPeers,
                  kNotServed);
    (void)cudaGetLastError();
    ORDER_REQUIRE(driver_serves(stream), kNotServed);
    drain();
}

/// Another pool becomes the device's current one; its default one is not asked any more, even when
/// it comes back.
void replaced() {
    const cudaStream_t stream = make_stream();
    Byte* const block = allocate_on(stream);
    const cudaMemPool_t other = explicit_pool();
    control::fail("cuDeviceSetMemPool", 1, CUDA_ERROR_INVALID_VALUE);
    ORDER_REQUIRE(cudaDeviceSetMemPool(0, other) != cudaSuccess, kCallFailed);
    (void)cudaGetLastError();
    ORDER_CHECK(cudaDeviceSetMemPool(0, default_pool()));
    ORDER_REQUIRE(!driver_serves(stream), kNotServed);
    ORDER_CHECK(cudaDeviceSetMemPool(0, other));
    ORDER_REQUIRE(driver_serves(stream), kNotServed);
    ORDER_CHECK(cudaDeviceSetMemPool(0, default_pool()));
    ORDER_REQUIRE(driver_serves(stream), kNotServed);
    free_on(stream, block);
    drain();
}

/// The same before the first stream-ordered call, of which the shim has not heard then.
void replaced_early() {
    const cudaStream_t stream = make_stream();
    ORDER_CHECK(cudaDeviceSetMemPool(0, explicit_pool()));
    ORDER_REQUIRE(driver_serves(stream), kNotServed);
    drain();
}

/// The default pool by its handle is the same pool, another one is the driver's.
void from_pool() {
    const cudaStream_t stream = make_stream();
    const cudaMemPool_t other = explicit_pool();
    for (const cudaMemPool_t pool : {default_pool(), other}) {
        const std::uint64_t before = control::calls("cuMemAllocFromPoolAsync");
        void* block = nullptr;
        ORDER_CHECK(cudaMallocFromPoolAsync(&block, kBytes, pool, stream));
        ORDER_REQUIRE((control::calls("cuMemAllocFromPoolAsync") != before) == (pool == other),
                      kNotServed);
        ORDER_CHECK(cudaFreeAsync(block, stream));
    }
    drain();
}

/// A context that is not the device's primary one is the driver's.
void other_context() {
    CUcontext context = nullptr;
    ORDER_CHECK(cuInit(0));
    ORDER_CHECK(cuCtxCreate(&context, nullptr, 0, 0));
    CUstream stream = nullptr;
    ORDER_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const std::uint64_t before = control::calls("cuMemAllocAsync");
    CUdeviceptr block = 0;
    ORDER_CHECK(cuMemAllocAsync(&block, kBytes, stream));
    ORDER_REQUIRE(control::calls("cuMemAllocAsync") != before, kNotServed);
    ORDER_CHECK(cuMemFreeAsync(block, stream));
    ORDER_CHECK(cuCtxDestroy(context));
}

void option() {
    const cudaStream_t stream = make_stream();
    ORDER_REQUIRE(driver_serves(stream), kNotServed);
    drain();
}

constexpr Case kCases[] = {
    {"mempool_figures", figures},
    {"mempool_trim", trim},
    {"mempool_opportunistic", [] { opportunistic(true); }},
    {"mempool_not_opportunistic", [] { opportunistic(false); }},
    {"mempool_set_access", [] { set_access(true); }},
    {"mempool_set_access_early", [] { set_access(false); }},
    {"mempool_set_access_in_vain", set_access_in_vain},
    {"mempool_replaced", replaced},
    {"mempool_replaced_early", replaced_early},
    {"mempool_from_pool", from_pool},
    {"mempool_other_context", other_context},
    {"mempool_option", option},
};

} // namespace

std::span<const Case> mempool_cases() {
    return kCases;
}

} // namespace order
