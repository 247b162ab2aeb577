// Level `ordered`: no fence while all work is totally ordered, and the ways out of that state. In
// each exit a block has been freed and handed out without a fence while its former user runs; then
// work appears that does not come later by itself.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <dlfcn.h>
#include <thread>

namespace order {

namespace {

constexpr cudaStream_t kLegacy = nullptr;

Byte* handed_out_unfenced(cudaStream_t reader) {
    Byte* const out = allocate();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    const std::uint64_t fences = simcuda::control::calls("cuCtxRecordEvent");
    Byte* const again = reuse(block);
    ORDER_REQUIRE(simcuda::control::calls("cuCtxRecordEvent") == fences, kFenced);
    return again;
}

void no_fence() {
    const cudaStream_t stream = make_stream(cudaStreamDefault);
    Byte* const out = allocate();
    const std::uint64_t fences = simcuda::control::calls("cuCtxRecordEvent");
    for (int i = 0; i < 100; ++i) {
        Byte* const block = allocate();
        ORDER_CHECK(fill(i % 2 == 0 ? stream : kLegacy, block, kNew, kBytes, 0));
        ORDER_CHECK(read_late(stream, block, out, kBytes, kLateNs));
        release(block);
    }
    ORDER_REQUIRE(simcuda::control::calls("cuCtxRecordEvent") == fences, kFenced);
    ORDER_REQUIRE(simcuda::control::calls("cuCtxWaitEvent") == 0, kFenced);
    drain();
}

/// With the end of the total order fences begin; the first ones find their events made.
void events_ahead() {
    Byte* block = allocate();
    make_stream();
    const std::uint64_t made = simcuda::control::calls("cuEventCreate");
    const std::uint64_t fences = simcuda::control::calls("cuCtxRecordEvent");
    for (int i = 0; i < 60; ++i) {
        release(block);
        drain();
        block = allocate();
    }
    ORDER_REQUIRE(simcuda::control::calls("cuCtxRecordEvent") == fences + 60, kFenced);
    ORDER_REQUIRE(simcuda::control::calls("cuEventCreate") == made, kFenced);
}

void exit_stream() {
    Byte* const block = handed_out_unfenced(kLegacy);
    ORDER_CHECK(fill(make_stream(), block, kNew, kBytes, 0));
    drain();
}

void exit_blocking() {
    Byte* const block = handed_out_unfenced(make_stream(cudaStreamDefault));
    ORDER_CHECK(fill(make_stream(cudaStreamDefault), block, kNew, kBytes, 0));
    drain();
}

/// The only stream is destroyed while its work runs, and another one takes its place.
void exit_successor() {
    const cudaStream_t first = make_stream(cudaStreamDefault);
    Byte* const block = handed_out_unfenced(first);
    ORDER_CHECK(cudaStreamDestroy(first));
    ORDER_CHECK(fill(make_stream(cudaStreamDefault), block, kNew, kBytes, 0));
    drain();
}

/// The only stream is destroyed while its work runs; the legacy stream goes on. It may be that the
/// work has ended by then, but nothing says so.
void exit_destroyed() {
    const cudaStream_t only = make_stream(cudaStreamDefault);
    Byte* const block = handed_out_unfenced(only);
    ORDER_CHECK(cudaStreamDestroy(only));
    simcuda::control::advance_ns(2 * kLateNs);
    ORDER_CHECK(cudaStreamDestroy(make_stream())); // the simulator forgets the first one
    ORDER_CHECK(fill(kLegacy, block, kNew, kBytes, 0));
    drain();
}

/// The same after another stream has ended the total order already.
void exit_destroyed_later() {
    const cudaStream_t only = make_stream(cudaStreamDefault);
    Byte* const block = handed_out_unfenced(only);
    make_stream();
    ORDER_CHECK(cudaStreamDestroy(only));
    simcuda::control::advance_ns(2 * kLateNs);
    ORDER_CHECK(cudaStreamDestroy(make_stream()));
    ORDER_CHECK(fill(kLegacy, block, kNew, kBytes, 0));
    drain();
}

/// A new stream waits before its first work, not before: natively it is idle.
void exit_query() {
    Byte* const block = handed_out_unfenced(kLegacy);
    const cudaStream_t first = make_stream();
    const cudaStream_t second = make_stream();
    ORDER_REQUIRE(cudaStreamQuery(first) == cudaSuccess, kCallFailed);
    ORDER_CHECK(cudaStreamDestroy(first));
    ORDER_CHECK(cudaStreamSynchronize(second));
    ORDER_CHECK(fill(second, block, kNew, kBytes, 0));
    drain();
}

/// The per-thread stream through an entry point that means it by the null stream, and through one
/// that has no stream argument at all.
template <class... Arguments>
void call_per_thread(const char* name, Arguments... arguments) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found{};
    ORDER_CHECK(cuGetProcAddress(name, &function, 13000,
                                 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found));
    ORDER_CHECK(reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...));
}

/// A capture on the per-thread stream, which the event must not join.
void exit_capture() {
    Byte* const block = handed_out_unfenced(make_stream(cudaStreamDefault));
    std::thread([&] {
        ORDER_CHECK(cudaFree(nullptr)); // makes the context current
        call_per_thread("cuStreamBeginCapture", CUstream{}, CU_STREAM_CAPTURE_MODE_RELAXED);
        ORDER_REQUIRE(fill(cudaStreamPerThread, block, kNew, kBytes, 0) == cudaSuccess,
                      kCaptureBroken);
        cudaGraph_t graph = nullptr;
        ORDER_REQUIRE(cudaStreamEndCapture(cudaStreamPerThread, &graph) == cudaSuccess,
                      kCaptureBroken);
        cudaGraphExec_t executable = nullptr;
        ORDER_CHECK(cudaGraphInstantiate(&executable, graph, 0));
        ORDER_CHECK(cudaGraphLaunch(executable, cudaStreamPerThread));
    }).join();
    drain();
}

/// The per-thread stream by its handle. It is a blocking one, so the reader is not on the legacy
/// stream.
void exit_per_thread() {
    Byte* const block = handed_out_unfenced(make_stream(cudaStreamDefault));
    std::thread([&] { ORDER_CHECK(fill(cudaStreamPerThread, block, kNew, kBytes, 0)); }).join();
    drain();
}

void exit_ptsz() {
    Byte* const block = handed_out_unfenced(make_stream(cudaStreamDefault));
    call_per_thread("cuMemsetD8Async", reinterpret_cast<CUdeviceptr>(block),
                    static_cast<unsigned char>(kNew), kBytes, CUstream{});
    drain();
}

void exit_ptds() {
    Byte* const block = handed_out_unfenced(make_stream(cudaStreamDefault));
    call_per_thread("cuMemsetD8", reinterpret_cast<CUdeviceptr>(block),
                    static_cast<unsigned char>(kNew), kBytes);
    drain();
}

/// Streams that come while the event of the first exit has not finished.
void exit_again() {
    Byte* const block = handed_out_unfenced(kLegacy);
    make_stream();
    ORDER_CHECK(fill(make_stream(), block, kNew, kBytes, 0));
    drain();
}

/// A second context: that exit waits on the host.
void exit_context() {
    Byte* const block = handed_out_unfenced(kLegacy);
    ORDER_CHECK(cudaSetDevice(1));
    Byte* const source = allocate();
    ORDER_CHECK(cudaMemcpyPeerAsync(block, 0, source, 1, kBytes, kLegacy));
    drain();
    ORDER_CHECK(cudaSetDevice(0));
    drain();
}

/// A library that submits work through the driver's private tables, by its name.
void unseen_submitter() {
    ORDER_REQUIRE(dlopen(ORDER_UNSEEN_SUBMITTER, RTLD_NOW | RTLD_LOCAL) != nullptr, kCallFailed);
    release(allocate());
    const std::uint64_t fences = simcuda::control::calls("cuCtxRecordEvent");
    release(allocate());
    ORDER_REQUIRE(simcuda::control::calls("cuCtxRecordEvent") == fences + 1, kNotFenced);
}

/// No second stream at all: a launch that may overlap the kernel in front of it.
void programmatic() {
    Byte* const block = handed_out_unfenced(kLegacy);
    ORDER_CHECK(fill_early(kLegacy, block, kNew, kBytes));
    drain();
}

/// Nothing is handed out, but natively the free waits for the kernel in front (free:auto).
void programmatic_free() {
    Byte* const block = allocate();
    Byte* const unrelated = allocate();
    drain();
    ORDER_CHECK(fill(kLegacy, block, kOld, kBytes, kLateNs));
    release(unrelated);
    ORDER_CHECK(fill_early(kLegacy, block, kNew, kBytes));
    drain();
}

/// Behind a barrier, on the stream of the former user.
void programmatic_fenced() {
    const cudaStream_t stream = make_stream();
    Byte* const out = allocate();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(stream, block, out, kBytes, kLateNs));
    ORDER_CHECK(fill_early(stream, reuse(block), kNew, kBytes));
    drain();
}

constexpr Case kCases[] = {
    {"ordered_no_fence", no_fence},
    {"ordered_events_ahead", events_ahead},
    {"ordered_exit_stream", exit_stream},
    {"ordered_exit_blocking", exit_blocking},
    {"ordered_exit_successor", exit_successor},
    {"ordered_exit_destroyed", exit_destroyed},
    {"ordered_exit_destroyed_later", exit_destroyed_later},
    {"ordered_exit_query", exit_query},
    {"ordered_exit_capture", exit_capture},
    {"ordered_exit_per_thread", exit_per_thread},
    {"ordered_exit_ptsz", exit_ptsz},
    {"ordered_exit_ptds", exit_ptds},
    {"ordered_exit_again", exit_again},
    {"ordered_exit_context", exit_context},
    {"ordered_unseen_submitter", unseen_submitter},
    {"programmatic", programmatic},
    {"programmatic_free", programmatic_free},
    {"programmatic_fenced", programmatic_fenced},
};

} // namespace

std::span<const Case> ordered_cases() {
    return kCases;
}

} // namespace order
