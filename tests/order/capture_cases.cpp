// Allocating and freeing beside an open stream capture.
#include "tests/order/cases.h"

#include <atomic>
#include <thread>
#include <vector>

namespace order {

namespace {

cudaGraph_t end_capture(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    ORDER_REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess, kCaptureBroken);
    return graph;
}

void capture_fill(cudaStream_t stream, Byte* block) {
    ORDER_REQUIRE(fill(stream, block, kOld, kBytes, kLateNs) == cudaSuccess, kCaptureBroken);
}

void launch(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t executable = nullptr;
    ORDER_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    ORDER_CHECK(cudaGraphLaunch(executable, stream));
}

/// Natively cudaMalloc fails inside a capture of mode `global` and ends its validity; the program
/// copes with that. If the pool served it, the free's event would break the capture where natively
/// nothing was allocated at all, or the temporary's next owner would meet every launch of the
/// graph.
void temporary() {
    const cudaStream_t stream = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const first = allocate();
    Byte* const second = allocate();
    release(first);
    release(second);
    drain();
    Byte* const fallback = allocate(); // the other one is settled by now: the pool could serve it
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    void* block = nullptr;
    cudaGraph_t graph = nullptr;
    if (cudaMalloc(&block, kBytes) == cudaSuccess) {
        capture_fill(stream, static_cast<Byte*>(block));
        ORDER_CHECK(cudaFree(block));
        graph = end_capture(stream);
    } else {
        ORDER_REQUIRE(cudaGetLastError() == cudaErrorStreamCaptureUnsupported, kCallFailed);
        ORDER_REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated,
                      kCallFailed);
        (void)cudaGetLastError();
        ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        capture_fill(stream, fallback);
        graph = end_capture(stream);
    }
    launch(graph, stream);
    Byte* const next = allocate();
    ORDER_CHECK(fill(writer, next, kNew, kBytes, 0));
    drain();
}

/// Another thread frees and allocates while this one captures, as natively allowed in this mode.
void beside() {
    const cudaStream_t stream = make_stream();
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const captured = allocate();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    std::thread([&] {
        release(block);
        Byte* const other = allocate();
        ORDER_CHECK(fill(writer, other, kNew, kBytes, 0));
        release(other);
    }).join();
    capture_fill(stream, captured);
    launch(end_capture(stream), stream);
    Byte* const early = allocate();
    ORDER_CHECK(fill(writer, early, kNew, kBytes, 0));
    drain();
    // What was set aside comes back once it is finished.
    if (early != block) ORDER_REQUIRE(allocate() == block, kNotReused);
}

/// The capturing thread itself, in the mode that allows everything.
void relaxed() {
    const cudaStream_t stream = make_stream();
    const cudaStream_t reader = make_stream();
    Byte* const out = allocate();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    release(block);
    Byte* const inside = allocate();
    capture_fill(stream, inside);
    const cudaGraph_t graph = end_capture(stream);
    Byte* const next = allocate();
    launch(graph, stream);
    ORDER_CHECK(cudaMemset(next, kNew, kBytes));
    drain();
    release(inside);
    release(next);
}

/// A capture that another stream joins, and one that is broken and ended late: the pool serves
/// again only when the last is over.
void nested() {
    const cudaStream_t first = make_stream();
    const cudaStream_t second = make_stream();
    const cudaStream_t broken = make_stream();
    cudaEvent_t event = nullptr;
    ORDER_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    Byte* const one = allocate();
    Byte* const two = allocate();
    Byte* const freed = allocate();
    drain();
    ORDER_CHECK(cudaStreamBeginCapture(broken, cudaStreamCaptureModeThreadLocal));
    ORDER_REQUIRE(cudaStreamSynchronize(broken) != cudaSuccess, kCallFailed); // breaks it
    (void)cudaGetLastError();
    ORDER_CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    capture_fill(first, one);
    ORDER_CHECK(cudaEventRecord(event, first));
    ORDER_CHECK(cudaStreamWaitEvent(second, event, 0));
    capture_fill(second, two);
    std::thread([&] { release(freed); }).join();
    ORDER_CHECK(cudaEventRecord(event, second));
    ORDER_CHECK(cudaStreamWaitEvent(first, event, 0));
    const cudaGraph_t graph = end_capture(first);
    cudaGraph_t none = nullptr;
    ORDER_REQUIRE(cudaStreamEndCapture(broken, &none) != cudaSuccess, kCallFailed);
    (void)cudaGetLastError();
    launch(graph, first);
    ORDER_REQUIRE(allocate() == freed, kNotReused);
    Byte* const block = reuse(two); // the graph is not launched again
    ORDER_CHECK(fill(second, block, kNew, kBytes, 0));
    drain();
}

/// One thread captures again and again while others free and allocate: between a look at the open
/// captures and the record of an event none may begin.
void captures_among_threads() {
    constexpr int kThreads = 3;
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&ended] {
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
    for (int round = 0; round < 100; ++round) {
        ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        capture_fill(stream, mine);
        const cudaGraph_t graph = end_capture(stream);
        if (round % 10 == 0) launch(graph, stream);
    }
    ended.store(true);
    for (std::thread& thread : threads)
        thread.join();
    drain();
}

constexpr Case kCases[] = {
    {"captures_among_threads", captures_among_threads},
    {"capture_aside", temporary},
    {"capture_beside", beside},
    {"capture_relaxed", relaxed},
    {"capture_nested", nested},
};

} // namespace

std::span<const Case> capture_cases() {
    return kCases;
}

} // namespace order
