// Several contexts and devices: no barrier on one holds up the other.
#include "tests/order/cases.h"

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

constexpr Case kCases[] = {
    {"two_devices", two_devices},
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
