#include "tests/contract/capture.h"

#include <thread>

namespace contract {

namespace {

const char* name_of(CUstreamCaptureMode mode) {
    return mode == kGlobal ? "global" : mode == kLocal ? "thread-local" : "relaxed";
}

} // namespace

std::string name_of(CUstreamCaptureMode mode, Who who) {
    return std::string(name_of(mode)) + " capture, " +
           (who == Who::another_thread ? "another thread" : "capturing thread");
}

CUdeviceptr capture_target() {
    static const CUdeviceptr memory = driver_allocate(4096);
    return memory;
}

Outcome beside_capture(const Device& device, CUstreamCaptureMode mode, Who who,
                       const std::function<CUresult()>& action) {
    Stream stream;
    const CUdeviceptr written = capture_target();
    REQUIRE(cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(written, 1, 4096, stream) == CUDA_SUCCESS);
    Outcome outcome{CUDA_ERROR_UNKNOWN, false};
    const auto act = [&] {
        cuCtxSetCurrent(device.context());
        outcome.result = action();
        cudaGetLastError();
    };
    if (who == Who::another_thread) {
        std::thread(act).join();
    } else {
        act();
    }
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(stream, &graph);
    outcome.valid = ended == CUDA_SUCCESS;
    if (outcome.valid) {
        REQUIRE(graph != nullptr);
        REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
    } else {
        CHECK(ended == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        CHECK(graph == nullptr);
    }
    return outcome;
}

void check_pool_serves() {
    if (!under_shim() || !simcuda::control::simulated()) return;
    REQUIRE(cuMemFree(driver_allocate(12345)) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    const std::uint64_t before = simcuda::control::calls("cuMemAlloc_v2");
    for (int i = 0; i < 20; ++i) {
        REQUIRE(cuMemFree(driver_allocate(12345)) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    }
    CHECK(simcuda::control::calls("cuMemAlloc_v2") - before <= 2);
}

} // namespace contract
