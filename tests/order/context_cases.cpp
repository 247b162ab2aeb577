// Several contexts and devices: no barrier on one holds up the other.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <vector>

namespace order {

namespace {

void use_device(int device) {
    ORDER_CHECK(cudaSetDevice(device));
}

/// A block of device 0, freed under a late reader and handed out again, is written by device 1 in
/// every way there is between devices.
void two_devices() {
    use_device(1);
    Byte* const source = allocate();
    const cudaStream_t far = make_stream();
    ORDER_CHECK(cudaDeviceEnablePeerAccess(0, 0));
    use_device(0);
    ORDER_CHECK(cudaDeviceEnablePeerAccess(1, 0));
    const cudaStream_t reader = make_stream();
    const cudaStream_t near = make_stream();
    Byte* const out = allocate();
    for (int way = 0; way < 6; ++way) {
        Byte* const block = allocate();
        ORDER_CHECK(cudaMemset(block, kOld, kBytes));
        drain();
        ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
        Byte* const again = reuse(block);
        switch (way) {
        case 0:
            ORDER_CHECK(cudaMemcpyPeerAsync(again, 0, source, 1, kBytes, far));
            break;
        case 1:
            ORDER_CHECK(cudaMemcpyPeerAsync(again, 0, source, 1, kBytes, near));
            break;
        case 2:
            ORDER_CHECK(cudaMemcpyPeer(again, 0, source, 1, kBytes));
            break;
        case 3:
            ORDER_CHECK(cudaMemcpyAsync(again, source, kBytes, cudaMemcpyDefault, far));
            break;
        case 4:
            use_device(1);
            ORDER_CHECK(fill(far, again, kNew, kBytes, 0));
            break;
        default:
            use_device(1);
            ORDER_CHECK(cudaMemcpy(again, source, kBytes, cudaMemcpyDefault));
            break;
        }
        use_device(1);
        drain();
        use_device(0);
        drain();
        release(again);
        drain();
    }
}

/// A kernel of device 1 reads a block of device 0 that is freed in the order of its stream.
void free_behind_second_device() {
    use_device(1);
    const cudaStream_t far = make_stream();
    ORDER_CHECK(cudaDeviceEnablePeerAccess(0, 0));
    Byte* const out = allocate();
    use_device(0);
    const cudaStream_t near = make_stream();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    use_device(1);
    ORDER_CHECK(read_late(far, block, out, kBytes, kLateNs));
    ORDER_CHECK(cudaFreeAsync(block, far));
    use_device(0);
    Byte* const next = allocate();
    ORDER_CHECK(fill(near, next, kNew, kBytes, 0));
    use_device(1);
    drain();
    use_device(0);
    drain();
    if (next != block) ORDER_REQUIRE(allocate() == block, kNotReused);
}

CUdeviceptr driver_allocate() {
    CUdeviceptr block = 0;
    ORDER_CHECK(cuMemAlloc(&block, kBytes));
    return block;
}

/// Contexts that come and go, each with work behind its frees when it ends.
void contexts_in_a_loop() {
    ORDER_CHECK(cuInit(0));
    for (int round = 0; round < 20; ++round) {
        CUcontext context = nullptr;
        CUstream first = nullptr;
        CUstream second = nullptr;
        ORDER_CHECK(cuCtxCreate(&context, nullptr, 0, 0));
        ORDER_CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
        ORDER_CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
        const CUdeviceptr block = driver_allocate();
        ORDER_CHECK(cuMemsetD8Async(block, kOld, kBytes, first));
        ORDER_CHECK(cuMemFree(block));
        const CUdeviceptr again = driver_allocate();
        ORDER_REQUIRE(again == block, kNotReused);
        ORDER_CHECK(cuMemsetD8Async(again, kNew, kBytes, second));
        if (round % 3 != 0) ORDER_CHECK(cuMemFree(again)); // else the context takes it along
        if (round % 3 == 1) ORDER_CHECK(cuStreamDestroy(first));
        ORDER_CHECK(cuCtxDestroy(context));
    }
}

/// Two contexts of one device, of which one comes and goes; the blocks of the other stay right.
void second_context_comes_and_goes() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* block = allocate();
    for (int round = 0; round < 10; ++round) {
        ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
        block = reuse(block);
        CUcontext context = nullptr;
        ORDER_CHECK(cuCtxCreate(&context, nullptr, 0, 0));
        const CUdeviceptr source = driver_allocate();
        CUstream far = nullptr;
        ORDER_CHECK(cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
        ORDER_CHECK(cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(block), source, kBytes, far));
        ORDER_CHECK(cuStreamSynchronize(far));
        ORDER_CHECK(cuMemFree(source));
        ORDER_CHECK(cuCtxDestroy(context));
        ORDER_CHECK(cudaMemsetAsync(block, kOld, kBytes, writer));
        drain();
    }
}

/// cudaDeviceReset ends the primary context; the next call makes another.
void resets() {
    for (int round = 0; round < 10; ++round) {
        const cudaStream_t stream = make_stream();
        const cudaStream_t other = make_stream();
        Byte* const block = allocate();
        ORDER_CHECK(fill(stream, block, kOld, kBytes, kLateNs));
        ORDER_CHECK(fill(other, reuse(block), kNew, kBytes, 0));
        ORDER_CHECK(cudaDeviceReset());
    }
}

/// Work in a green context and work of its primary use one pool: an event of either alone would
/// miss the other's. Whatever context is current when a block is freed and handed out.
void green_contexts() {
    Byte* const out = allocate();
    CUcontext primary = nullptr;
    ORDER_CHECK(cuCtxGetCurrent(&primary));
    CUdevResource all{};
    CUdevResourceDesc share = nullptr;
    ORDER_CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    ORDER_CHECK(cuDevResourceGenerateDesc(&share, &all, 1));
    for (int round = 0; round < 8; ++round) {
        CUgreenCtx green = nullptr;
        CUcontext converted = nullptr;
        CUstream inside = nullptr;
        ORDER_CHECK(cuGreenCtxCreate(&green, share, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        ORDER_CHECK(cuGreenCtxStreamCreate(&inside, green, CU_STREAM_NON_BLOCKING, 0));
        const bool current = round % 2 != 0;
        if (current) {
            ORDER_CHECK(cuCtxFromGreenCtx(&converted, green));
            ORDER_CHECK(cuCtxPushCurrent(converted));
        }
        const cudaStream_t outside = make_stream(); // of the green context, where that is current
        CUdeviceptr block = 0;
        ORDER_CHECK(cuMemAlloc(&block, kBytes));
        ORDER_CHECK(cuMemsetD8(block, kOld, kBytes));
        ORDER_CHECK(cuCtxSynchronize());
        const bool read_inside = round / 2 % 2 == 0;
        ORDER_CHECK(read_late(read_inside ? inside : outside, reinterpret_cast<Byte*>(block), out,
                              kBytes, kLateNs));
        ORDER_CHECK(cuMemFree(block));
        if (round >= 4) { // handed out where the other context is current
            ORDER_CHECK(current ? cuCtxPopCurrent(nullptr) : cuCtxPushCurrent(primary));
        }
        CUdeviceptr again = 0;
        ORDER_CHECK(cuMemAlloc(&again, kBytes));
        ORDER_REQUIRE(again == block, kNotReused);
        ORDER_CHECK(
            fill(read_inside ? outside : inside, reinterpret_cast<Byte*>(again), kNew, kBytes, 0));
        ORDER_CHECK(cuCtxSetCurrent(primary));
        ORDER_CHECK(cuCtxSynchronize());
        ORDER_CHECK(cuMemFree(again));
        ORDER_CHECK(cudaStreamDestroy(outside));
        ORDER_CHECK(cuStreamDestroy(inside));
        ORDER_CHECK(cuGreenCtxDestroy(green));
    }
}

/// The primary context lives until its last user lets go of it, green contexts among them: its
/// memory stays as long, and is gone then.
void primary_retained_twice() {
    ORDER_CHECK(cuInit(0));
    CUcontext context = nullptr;
    CUcontext same = nullptr;
    CUgreenCtx green = nullptr;
    CUdevResource all{};
    CUdevResourceDesc share = nullptr;
    ORDER_CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    ORDER_CHECK(cuDevResourceGenerateDesc(&share, &all, 1));
    for (int round = 0; round < 6; ++round) {
        const bool with_green = round % 2 != 0;
        if (with_green && round > 2) { // it is the first to bring the primary to life
            ORDER_CHECK(cuGreenCtxCreate(&green, share, 0, CU_GREEN_CTX_DEFAULT_STREAM));
            ORDER_CHECK(cuDevicePrimaryCtxRetain(&context, 0));
        } else {
            ORDER_CHECK(cuDevicePrimaryCtxRetain(&context, 0));
            if (with_green) {
                ORDER_CHECK(cuGreenCtxCreate(&green, share, 0, CU_GREEN_CTX_DEFAULT_STREAM));
            } else {
                ORDER_CHECK(cuDevicePrimaryCtxRetain(&same, 0));
            }
        }
        ORDER_CHECK(cuCtxSetCurrent(context));
        const CUdeviceptr block = driver_allocate();
        const CUdeviceptr freed = driver_allocate();
        ORDER_CHECK(cuMemsetD8(block, kNew, kBytes));
        ORDER_CHECK(cuDevicePrimaryCtxRelease(0));
        ORDER_CHECK(cuMemFree(freed)); // lives on
        std::vector<unsigned char> host(kBytes);
        ORDER_CHECK(cuMemcpyDtoH(host.data(), block, kBytes));
        ORDER_REQUIRE(host[0] == kNew && host[kBytes - 1] == kNew, kWrongContent);
        ORDER_CHECK(with_green ? cuGreenCtxDestroy(green) : cuDevicePrimaryCtxRelease(0));
        ORDER_REQUIRE(cuMemFree(block) != CUDA_SUCCESS, kWrongContent); // went with its context
    }
}

/// A fault ends one context; the other, on the second device, allocates, frees and computes on.
void fault_in_one_context() {
    use_device(0);
    const cudaStream_t stream = make_stream();
    Byte* const block = allocate();
    use_device(1);
    const cudaStream_t other = make_stream();
    Byte* const out = allocate();
    Byte* const kept = allocate();
    ORDER_CHECK(cudaMemset(kept, kOld, kBytes));
    drain();
    use_device(0);
    simcuda::control::set("fault", 1);
    ORDER_CHECK(fill(stream, block, kNew, kBytes, 0));
    ORDER_REQUIRE(cudaDeviceSynchronize() == cudaErrorIllegalAddress, kCallFailed);
    ORDER_REQUIRE(cudaFree(block) == cudaErrorIllegalAddress, kCallFailed);
    void* none = nullptr;
    ORDER_REQUIRE(cudaMalloc(&none, kBytes) == cudaErrorIllegalAddress, kCallFailed);
    (void)cudaGetLastError();
    ORDER_REQUIRE(cudaSetDevice(1) == cudaSuccess, kCallFailed);
    for (int round = 0; round < 5; ++round) {
        Byte* const temporary = allocate();
        ORDER_CHECK(read_late(other, kept, temporary, kBytes, kLateNs));
        ORDER_CHECK(read_late(other, temporary, out, kBytes, kLateNs));
        release(temporary);
        ORDER_CHECK(cudaMemsetAsync(allocate(), kNew, kBytes, other));
    }
    drain();
    std::vector<unsigned char> host(kBytes);
    ORDER_CHECK(cudaMemcpy(host.data(), out, kBytes, cudaMemcpyDeviceToHost));
    ORDER_REQUIRE(host[0] == kOld && host[kBytes - 1] == kOld, kWrongContent);
    // A reset brings the first one back.
    ORDER_CHECK(cudaSetDevice(0));
    ORDER_CHECK(cudaDeviceReset());
    Byte* const fresh = allocate();
    ORDER_CHECK(fill(nullptr, fresh, kNew, kBytes, 0));
    drain();
    release(fresh);
}

/// Memory of device 0, from before and after access was given, and a block made of what was free in
/// several places: kernels of device 1 write all of it.
void peer_reach() {
    constexpr std::size_t kLarge = std::size_t{4} << 20;
    std::vector<Byte*> all;
    for (int i = 0; i < 8; ++i)
        all.push_back(allocate(kLarge));
    use_device(1);
    ORDER_CHECK(cudaDeviceEnablePeerAccess(0, 0));
    const cudaStream_t far = make_stream();
    use_device(0);
    for (int i = 0; i < 4; ++i)
        all.push_back(allocate(kLarge));
    for (std::size_t i = 0; i < all.size(); i += 2) {
        release(all[i]);
        all[i] = nullptr;
    }
    drain();
    for (int i = 0; i < 2; ++i)
        all.push_back(allocate(3 * kLarge));
    use_device(1);
    for (Byte* const block : all) {
        if (block == nullptr) continue;
        const bool large = block == all.back() || block == *(all.end() - 2);
        for (std::size_t at = 0; at < (large ? 3 : 1) * kLarge; at += kLarge / 2)
            ORDER_CHECK(fill(far, block + at, kNew, kBytes, 0));
    }
    drain();
    ORDER_CHECK(cudaDeviceDisablePeerAccess(0));
    use_device(0);
    drain();
}

constexpr Case kCases[] = {
    {"green_contexts", green_contexts},
    {"primary_retained_twice", primary_retained_twice},
    {"fault_in_one_context", fault_in_one_context},
    {"two_devices", two_devices},
    {"peer_reach", peer_reach},
    {"free_behind_second_device", free_behind_second_device},
    {"contexts_in_a_loop", contexts_in_a_loop},
    {"second_context_comes_and_goes", second_context_comes_and_goes},
    {"resets", resets},
};

} // namespace

std::span<const Case> context_cases() {
    return kCases;
}

} // namespace order
