// Memory and captures over time: what was freed beside a capture comes back, what a graph uses is
// nobody else's, and the pool serves again however a capture ended.
#include "tests/contract/capture.h"

#include <thread>

using namespace contract;

// Blocks freed while a capture is open are not lost: more is freed in captures than the device of
// the simulated CUDA has.
TEST_CASE("memory freed inside captures comes back", "[capture][info]") {
    Device device;
    Stream stream;
    const std::size_t before = free_memory();
    for (int round = 0; round < 60; ++round) {
        void* const early = allocate(50 * kMiB);
        REQUIRE(cudaMemsetAsync(early, round, 4096, stream) == cudaSuccess);
        REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        REQUIRE(cudaFree(early) == cudaSuccess);
        void* const inside = allocate(50 * kMiB);
        REQUIRE(cudaFree(inside) == cudaSuccess);
        REQUIRE(cudaFree(inside) == cudaErrorInvalidValue);
        cudaGetLastError();
        cudaGraph_t graph = nullptr;
        REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    }
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(free_memory() + 2 * kSlackOfFree >= before);
    check_pool_serves();
}

// A graph's own memory stays its own, whatever is freed and allocated between launches.
TEST_CASE("a graph launched again and again beside frees and allocations", "[capture][order]") {
    Device device;
    Kernels kernels;
    Stream capture;
    Stream other;
    constexpr std::size_t kBytes = 256 * kKiB;
    const CUstreamCaptureMode mode = GENERATE(kGlobal, kLocal, kRelaxed);
    void* const input = allocate(kBytes);
    void* const unused = allocate(kBytes);
    void* output = allocate(kBytes);
    fill(input, kBytes, 7);
    fill(output, kBytes, 8);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);

    REQUIRE(cuStreamBeginCapture(capture, mode) == CUDA_SUCCESS);
    void* scratch = nullptr;
    if (mode == kRelaxed) {
        scratch = allocate(kBytes);
        REQUIRE(cudaFree(unused) == cudaSuccess);
        kernels.late_copy(scratch, input, kBytes, 1, capture);
        kernels.late_copy(output, scratch, kBytes, 0, capture);
    } else {
        kernels.late_copy(output, input, kBytes, 1, capture);
    }
    CUgraph graph = nullptr;
    REQUIRE(cuStreamEndCapture(capture, &graph) == CUDA_SUCCESS);
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    if (mode != kRelaxed) REQUIRE(cudaFree(unused) == cudaSuccess);

    for (std::uint32_t round = 0; round < 15; ++round) {
        void* const beside_it = allocate(kBytes);
        fill(beside_it, kBytes, 100 + round);
        void* const copy = allocate(kBytes);
        REQUIRE(cudaMemsetAsync(output, 0, kBytes, capture) == cudaSuccess);
        REQUIRE(cudaGraphLaunch(executable, capture) == cudaSuccess);
        kernels.late_copy(copy, beside_it, kBytes, 1, other);
        REQUIRE(cudaFree(beside_it) == cudaSuccess);
        void* const next = allocate(kBytes);
        REQUIRE(cudaMemsetAsync(next, 0xEE, kBytes, other) == cudaSuccess);
        REQUIRE(cudaFree(next) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(other) == cudaSuccess);
        REQUIRE(holds(copy, kBytes, 100 + round));
        REQUIRE(cudaFree(copy) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(capture) == cudaSuccess);
        REQUIRE(holds(output, kBytes, 7));
    }
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(holds(input, kBytes, 7));
    if (scratch != nullptr) CHECK(cudaFree(scratch) == cudaSuccess);
    CHECK(cudaFree(output) == cudaSuccess);
    CHECK(cudaFree(input) == cudaSuccess);
}

// Another thread allocates, uses and frees while a thread-local capture is open.
TEST_CASE("another thread works on beside a thread-local capture", "[capture][threads]") {
    Device device;
    Stream stream;
    const CUdeviceptr written = capture_target();
    REQUIRE(cuStreamBeginCapture(stream, kLocal) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(written, 1, 4096, stream) == CUDA_SUCCESS);
    int wrong = 0;
    std::thread([&] {
        cuCtxSetCurrent(device.context());
        CUstream own = nullptr;
        wrong += cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
        for (unsigned round = 0; round < 20; ++round) {
            CUdeviceptr memory = 0;
            wrong += cuMemAlloc(&memory, 20000) != CUDA_SUCCESS;
            wrong += cuMemsetD32Async(memory, round, 5000, own) != CUDA_SUCCESS;
            std::vector<unsigned> host(5000);
            wrong += cuMemcpyDtoHAsync(host.data(), memory, 20000, own) != CUDA_SUCCESS;
            wrong += cuStreamSynchronize(own) != CUDA_SUCCESS;
            for (const unsigned word : host)
                wrong += word != round;
            wrong += cuMemFree(memory) != CUDA_SUCCESS;
        }
        cuStreamDestroy(own);
    }).join();
    CHECK(wrong == 0);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    check_pool_serves();
}

TEST_CASE("captures that end in other ways", "[capture]") {
    Device device;
    SECTION("a second begin on the same stream fails and changes nothing") {
        Stream stream;
        REQUIRE(cuStreamBeginCapture(stream, kRelaxed) == CUDA_SUCCESS);
        CHECK(cuStreamBeginCapture(stream, kRelaxed) == CUDA_ERROR_ILLEGAL_STATE);
        CUgraph graph = nullptr;
        REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
        CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    }
    SECTION("a capture that nobody began cannot be ended") {
        Stream stream;
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    }
    SECTION("the legacy stream cannot be captured") {
        CHECK(cuStreamBeginCapture(nullptr, kRelaxed) == kRefused);
    }
    SECTION("an invalidated capture refuses until it is ended") {
        Stream stream;
        REQUIRE(cuStreamBeginCapture(stream, kGlobal) == CUDA_SUCCESS);
        CUdeviceptr memory = 0;
        CHECK(cuMemAlloc(&memory, 4096) == kRefused);
        measured("cuMemAlloc beside an invalidated global capture", cuMemAlloc(&memory, 4096));
        measured("cuMemFree(0) beside an invalidated global capture", cuMemFree(0));
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        memory = driver_allocate(4096);
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
    }
    SECTION("a stream destroyed while it captures") {
        cudaStream_t stream = nullptr;
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        REQUIRE(cuStreamBeginCapture(stream, kRelaxed) == CUDA_SUCCESS);
        measured("cuStreamDestroy of a capturing stream", cuStreamDestroy(stream));
    }
    SECTION("a fork that is not joined") {
        Stream first;
        Stream second;
        CUevent event = nullptr;
        REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        const CUdeviceptr written = capture_target();
        REQUIRE(cuStreamBeginCapture(first, kRelaxed) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD8Async(written, 1, 4096, first) == CUDA_SUCCESS);
        REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD8Async(written, 2, 4096, second) == CUDA_SUCCESS);
        const CUdeviceptr memory = driver_allocate(4096);
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(second, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        CHECK(cuStreamEndCapture(first, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
        CHECK(cuEventDestroy(event) == CUDA_SUCCESS);
    }
    SECTION("ended by another thread than began it") {
        Stream stream;
        REQUIRE(cuStreamBeginCapture(stream, kGlobal) == CUDA_SUCCESS);
        CUresult ended = CUDA_SUCCESS;
        std::thread([&] {
            cuCtxSetCurrent(device.context());
            CUgraph graph = nullptr;
            ended = cuStreamEndCapture(stream, &graph);
        }).join();
        CHECK(ended == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        CUgraph graph = nullptr; // that ended it
        CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    }
    SECTION("two captures, one inside the other") {
        Stream first;
        Stream second;
        REQUIRE(cuStreamBeginCapture(first, kRelaxed) == CUDA_SUCCESS);
        REQUIRE(cuStreamBeginCapture(second, kRelaxed) == CUDA_SUCCESS);
        const CUdeviceptr memory = driver_allocate(4096);
        CUgraph graph = nullptr;
        REQUIRE(cuStreamEndCapture(first, &graph) == CUDA_SUCCESS);
        REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
        const CUdeviceptr other = driver_allocate(4096);
        CHECK(cuMemFree(other) == CUDA_SUCCESS);
        REQUIRE(cuStreamEndCapture(second, &graph) == CUDA_SUCCESS);
        REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
    }
    check_pool_serves();
}
