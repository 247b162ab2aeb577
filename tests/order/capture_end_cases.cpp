// How captures end, and what they meet: streams whose first use is a capture, contexts that go with
// an open capture, per-thread streams of several threads, modes in which other threads must not be
// disturbed.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace order {

namespace {

cudaGraph_t end_capture(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    ORDER_REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess, kCaptureBroken);
    return graph;
}

void launch(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t executable = nullptr;
    ORDER_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    ORDER_CHECK(cudaGraphLaunch(executable, stream));
}

/// While all work is totally ordered a free needs no fence. The block's next user is a graph on a
/// stream that has not been used before.
Byte* handed_out_unfenced() {
    const cudaStream_t reader = make_stream(cudaStreamDefault);
    Byte* const out = allocate();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    return reuse(block);
}

/// The first use of the per-thread stream is a capture: a wait put on it then would break that.
void first_use_captures() {
    Byte* const block = handed_out_unfenced();
    const cudaStream_t stream = cudaStreamPerThread;
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ORDER_REQUIRE(fill(stream, block, kNew, kBytes, 0) == cudaSuccess, kCaptureBroken);
    launch(end_capture(stream), stream);
    drain();
}

/// The same where a capture spreads to it.
void first_use_joins_capture() {
    Byte* const block = handed_out_unfenced();
    Byte* const other = allocate();
    const cudaStream_t origin = make_stream();
    const cudaStream_t stream = cudaStreamPerThread;
    cudaEvent_t event = nullptr;
    ORDER_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ORDER_CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal));
    ORDER_REQUIRE(fill(origin, other, kNew, kBytes, 0) == cudaSuccess, kCaptureBroken);
    ORDER_CHECK(cudaEventRecord(event, origin));
    ORDER_CHECK(cudaStreamWaitEvent(stream, event, 0));
    ORDER_REQUIRE(fill(stream, block, kNew, kBytes, 0) == cudaSuccess, kCaptureBroken);
    ORDER_CHECK(cudaEventRecord(event, stream));
    ORDER_CHECK(cudaStreamWaitEvent(origin, event, 0));
    launch(end_capture(origin), stream);
    drain();
}

/// A kernel that may start early, beside a capture of another stream.
void early_kernel_beside_capture() {
    const cudaStream_t legacy = nullptr;
    Byte* const out = allocate();
    Byte* block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(legacy, block, out, kBytes, kLateNs));
    block = reuse(block);
    const cudaStream_t stream = make_stream();
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    ORDER_CHECK(fill_early(legacy, block, kNew, kBytes));
    // In the capture itself nothing is changed, and nothing breaks it.
    ORDER_REQUIRE(fill_early(stream, out, kNew, kBytes) == cudaSuccess, kCaptureBroken);
    const cudaGraph_t graph = end_capture(stream);
    drain();
    launch(graph, stream);
    drain();
}

bool under_shim() {
    Dl_info found{};
    return dladdr(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), &found) != 0 &&
           std::strstr(found.dli_fname, "cachealloc") != nullptr;
}

/// The pool serves: while a capture is taken for open, every allocation is the driver's.
void require_served() {
    release(allocate());
    drain();
    const std::uint64_t calls = simcuda::control::calls("cuMemAlloc_v2");
    release(allocate());
    ORDER_REQUIRE(!under_shim() || simcuda::control::calls("cuMemAlloc_v2") == calls, kNotServed);
}

void context_ends_capturing() {
    require_served();
    CUcontext primary = nullptr;
    ORDER_CHECK(cuCtxGetCurrent(&primary));
    for (int round = 0; round < 3; ++round) {
        CUcontext context = nullptr;
        CUstream stream = nullptr;
        ORDER_CHECK(cuCtxCreate(&context, nullptr, 0, 0));
        ORDER_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        ORDER_CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        if (round == 1) { // another context is current when it begins
            CUgraph graph = nullptr;
            ORDER_CHECK(cuStreamEndCapture(stream, &graph));
            ORDER_CHECK(cuCtxSetCurrent(primary));
            ORDER_CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        if (round == 2) { // the per-thread stream too
            ORDER_CHECK(
                cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        ORDER_CHECK(cuCtxDestroy(context));
        ORDER_CHECK(cuCtxSetCurrent(primary));
        require_served();
    }
    // One that cannot be destroyed keeps its captures.
    const cudaStream_t stream = make_stream();
    Byte* const block = allocate();
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ORDER_REQUIRE(cuCtxDestroy(primary) != CUDA_SUCCESS, kCallFailed);
    std::thread([&] { release(block); }).join();
    end_capture(stream);
}

void green_context_ends_capturing() {
    require_served();
    CUdevResource all{};
    CUdevResourceDesc share = nullptr;
    ORDER_CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    ORDER_CHECK(cuDevResourceGenerateDesc(&share, &all, 1));
    for (int round = 0; round < 2; ++round) {
        CUgreenCtx green = nullptr;
        CUcontext context = nullptr;
        CUstream stream = nullptr;
        ORDER_CHECK(cuGreenCtxCreate(&green, share, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        ORDER_CHECK(cuCtxFromGreenCtx(&context, green));
        ORDER_CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        ORDER_CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        if (round == 0) {
            ORDER_CHECK(cuGreenCtxDestroy(green));
            require_served();
        } else {
            ORDER_CHECK(cudaDeviceReset()); // it goes with its primary
            ORDER_CHECK(cudaSetDevice(0));
            require_served();
        }
    }
}

void reset_while_capturing() {
    for (int round = 0; round < 3; ++round) {
        const cudaStream_t stream = make_stream();
        ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        ORDER_CHECK(cudaDeviceReset());
        require_served();
    }
}

/// The handle of the per-thread stream is one and the same in all threads: another thread's failed
/// end must not be taken for the end of this one's capture.
void per_thread_captures() {
    Byte* const mine = allocate();
    Byte* const block = allocate();
    release(allocate());
    drain();
    std::atomic<int> step{0};
    const auto reach = [&step](int n) {
        ++step;
        while (step.load() < n)
            std::this_thread::yield();
    };
    std::thread other([&] {
        ORDER_CHECK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
        ORDER_REQUIRE(fill(cudaStreamPerThread, mine, kNew, kBytes, 0) == cudaSuccess,
                      kCaptureBroken);
        reach(2);
        reach(4);
        launch(end_capture(cudaStreamPerThread), cudaStreamPerThread);
    });
    reach(2);
    cudaGraph_t none = nullptr;
    ORDER_REQUIRE(cudaStreamEndCapture(cudaStreamPerThread, &none) != cudaSuccess, kCallFailed);
    (void)cudaGetLastError();
    release(block);
    reach(4);
    other.join();
    drain();
    require_served();
}

/// Beside captures that other threads must not disturb, those allocate and free under the exchange
/// that CUDA offers for it; captures go on in every mode and into graphs that exist.
void captures_in_all_modes() {
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&ended] {
            auto mode = cudaStreamCaptureModeRelaxed;
            ORDER_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
            const cudaStream_t stream = make_stream();
            while (!ended.load()) {
                Byte* const block = allocate();
                ORDER_CHECK(fill(stream, block, kNew, kBytes, 2000));
                release(block);
            }
        });
    }
    const cudaStream_t stream = make_stream();
    Byte* const mine = allocate();
    constexpr cudaStreamCaptureMode kModes[] = {cudaStreamCaptureModeGlobal,
                                                cudaStreamCaptureModeThreadLocal,
                                                cudaStreamCaptureModeRelaxed};
    for (int round = 0; round < 90; ++round) {
        const cudaStreamCaptureMode mode = kModes[round % 3];
        cudaGraph_t graph = nullptr;
        if (round % 2 == 0) {
            ORDER_CHECK(cudaStreamBeginCapture(stream, mode));
        } else {
            ORDER_CHECK(cudaGraphCreate(&graph, 0));
            ORDER_CHECK(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, mode));
        }
        ORDER_REQUIRE(fill(stream, mine, kOld, kBytes, kLateNs) == cudaSuccess, kCaptureBroken);
        if (mode == cudaStreamCaptureModeRelaxed) release(allocate());
        graph = end_capture(stream);
        if (round % 9 == 0) launch(graph, stream);
    }
    ended.store(true);
    for (std::thread& thread : threads)
        thread.join();
    drain();
}

/// A graph with allocations of its own, launched again and again beside frees and allocations.
void graph_allocates() {
    const cudaStream_t stream = make_stream();
    const cudaStream_t other = make_stream();
    Byte* const out = allocate();
    drain();
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    void* scratch = nullptr;
    ORDER_CHECK(cudaMallocAsync(&scratch, kBytes, stream));
    ORDER_REQUIRE(fill(stream, static_cast<Byte*>(scratch), kOld, kBytes, 1000) == cudaSuccess,
                  kCaptureBroken);
    ORDER_REQUIRE(read_late(stream, static_cast<Byte*>(scratch), out, kBytes, kLateNs) ==
                      cudaSuccess,
                  kCaptureBroken);
    ORDER_CHECK(cudaFreeAsync(scratch, stream));
    cudaGraphExec_t executable = nullptr;
    ORDER_CHECK(cudaGraphInstantiate(&executable, end_capture(stream), 0));
    for (int round = 0; round < 10; ++round) {
        ORDER_CHECK(cudaGraphLaunch(executable, stream));
        Byte* const block = allocate();
        ORDER_REQUIRE(block != scratch, kWrongContent);
        ORDER_CHECK(fill(other, block, kNew, kBytes, 1000));
        release(block);
        void* async = nullptr;
        ORDER_CHECK(cudaMallocAsync(&async, kBytes, other));
        ORDER_REQUIRE(async != scratch, kWrongContent);
        ORDER_CHECK(fill(other, static_cast<Byte*>(async), kNew, kBytes, 1000));
        ORDER_CHECK(cudaFreeAsync(async, other));
    }
    drain();
    // What an earlier allocation left behind is no graph's to free.
    void* before = nullptr;
    ORDER_CHECK(cudaMallocAsync(&before, kBytes, stream));
    drain();
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    const cudaError_t freed = cudaFreeAsync(before, stream);
    (void)cudaGetLastError();
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    if (freed != cudaSuccess) ORDER_CHECK(cudaFreeAsync(before, stream));
    drain();
}

constexpr Case kCases[] = {
    {"capture_first_use", first_use_captures},
    {"capture_early_kernel", early_kernel_beside_capture},
    {"capture_first_use_joins", first_use_joins_capture},
    {"capture_context_ends", context_ends_capturing},
    {"capture_green_ends", green_context_ends_capturing},
    {"capture_reset", reset_while_capturing},
    {"capture_per_thread", per_thread_captures},
    {"capture_all_modes", captures_in_all_modes},
    {"capture_graph_allocates", graph_allocates},
};

} // namespace

std::span<const Case> capture_end_cases() {
    return kCases;
}

} // namespace order
