// free:auto. What the host may look at after a cudaFree, and which frees need not wait for it.
#include "tests/order/host_scene.h"
#include "tests/simcuda/control.h"

#include <array>
#include <thread>
#include <utility>
#include <vector>

namespace order {

namespace {

/// Both kinds of stream: with a blocking one alone all work is totally ordered.
template <class Run>
void on_both_kinds(Run run) {
    run(make_stream(cudaStreamDefault));
    run(make_stream(cudaStreamNonBlocking));
}

// --- Frees that must wait: the results are looked at next.

void look_after_free(const HostWork& work) {
    on_both_kinds([&](cudaStream_t stream) {
        Scene scene(stream);
        const std::uint64_t before = native_waits();
        scene.compute();
        work.start(scene);
        scene.free_something();
        scene.look();
        const std::uint64_t waited = native_waits();
        ORDER_REQUIRE(waited <= before + 1, kWaits);
        scene.compute();
        scene.free_something(); // what has been waited for is not waited for again
        ORDER_REQUIRE(native_waits() == waited, kWaits);
    });
}

template <std::size_t index>
void look_after() {
    look_after_free(host_work(index));
}

/// The copy waits by itself where its target is pageable, on the simulated device and mostly on a
/// real one; a free finds the stream idle.
void look_after_pageable_copy() {
    on_both_kinds([](cudaStream_t stream) {
        Scene scene(stream);
        std::vector<Byte> pageable(kBytes);
        const std::uint64_t before = native_waits();
        scene.compute();
        ORDER_CHECK(
            cudaMemcpyAsync(pageable.data(), scene.block, kBytes, cudaMemcpyDeviceToHost, stream));
        scene.free_something();
        ORDER_REQUIRE(pageable[0] == kNew && pageable[kBytes - 1] == kNew, kWrongContent);
        ORDER_REQUIRE(native_waits() == before, kWaits);
    });
}

void look_after_destroyed_stream() {
    Scene scene(make_stream());
    make_stream();
    scene.compute();
    host_work(0).start(scene);
    ORDER_CHECK(cudaStreamDestroy(scene.stream));
    scene.free_something();
    scene.look();
}

/// Another thread's default stream cannot even be asked.
void look_after_gone_thread() {
    Scene scene(cudaStreamPerThread);
    std::thread([&scene] {
        scene.compute();
        host_work(0).start(scene);
    }).join();
    scene.free_something();
    scene.look();
}

/// Beside an open capture nothing can be recorded over the context: the stream alone is waited for.
void look_beside_capture() {
    Scene scene(make_stream());
    const cudaStream_t capturing = make_stream();
    Byte* const other = allocate(std::size_t{1} << 16);
    ORDER_CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    scene.compute();
    host_work(0).start(scene);
    release(other);
    scene.look();
    cudaGraph_t graph = nullptr;
    ORDER_REQUIRE(cudaStreamEndCapture(capturing, &graph) == cudaSuccess, kCaptureBroken);
    ORDER_CHECK(cudaGraphDestroy(graph));
}

/// A graph that was harmless until a copy of it was given another target.
void look_after_changed_graph() {
    Scene scene(make_stream());
    Byte* const elsewhere = allocate();
    CUcontext context = nullptr;
    ORDER_CHECK(cuCtxGetCurrent(&context));
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = reinterpret_cast<CUdeviceptr>(scene.block);
    copy.dstDevice = reinterpret_cast<CUdeviceptr>(elsewhere);
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = kBytes;
    copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec made = nullptr;
    ORDER_CHECK(cuGraphCreate(&graph, 0));
    ORDER_CHECK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
    ORDER_CHECK(cuGraphInstantiate(&made, graph, 0));
    const std::uint64_t before = native_waits();
    scene.compute();
    ORDER_CHECK(cuGraphLaunch(made, scene.stream));
    scene.free_something();
    ORDER_REQUIRE(native_waits() == before, kWaits);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = scene.pinned;
    ORDER_CHECK(cuGraphExecMemcpyNodeSetParams(made, node, &copy, context));
    ORDER_CHECK(cuGraphLaunch(made, scene.stream));
    scene.free_something();
    scene.look();
}

// --- Memory that a kernel writes and the host reads.

void look_at_managed() {
    Scene scene(make_stream());
    void* memory = nullptr;
    ORDER_CHECK(cudaMallocManaged(&memory, kBytes));
    auto* const managed = static_cast<Byte*>(memory);
    ORDER_CHECK(fill(scene.stream, managed, kNew, kBytes, kLateNs));
    scene.free_something();
    simcuda::control::host_access(managed, kBytes, false);
    ORDER_REQUIRE(managed[kBytes - 1] == kNew, kWrongContent);
    ORDER_CHECK(cudaFree(managed));
    const std::uint64_t before = native_waits();
    scene.compute();
    scene.free_something(); // nothing managed any more
    ORDER_REQUIRE(native_waits() == before, kWaits);
}

void* mapped_memory(std::size_t bytes, void** host) {
    void* device = nullptr;
    ORDER_CHECK(cudaHostAlloc(host, bytes, cudaHostAllocMapped));
    ORDER_CHECK(cudaHostGetDevicePointer(&device, *host, 0));
    return device;
}

void look_at_mapped() {
    Scene scene(make_stream());
    void* host = nullptr;
    auto* const device = static_cast<Byte*>(mapped_memory(kBytes, &host));
    ORDER_CHECK(fill(scene.stream, device, kNew, kBytes, kLateNs));
    scene.free_something();
    simcuda::control::host_access(host, kBytes, false);
    ORDER_REQUIRE(static_cast<Byte*>(host)[kBytes - 1] == kNew, kWrongContent);
    ORDER_CHECK(cudaFreeHost(host));
    mapped_memory(4096, &host); // as libraries do
    const std::uint64_t before = native_waits();
    scene.compute();
    scene.free_something();
    ORDER_REQUIRE(native_waits() == before, kWaits);
}

// --- Questions: what was recorded before a free is complete after it, natively.

cudaEvent_t make_event(unsigned flags = cudaEventDefault) {
    cudaEvent_t event = nullptr;
    ORDER_CHECK(cudaEventCreateWithFlags(&event, flags));
    return event;
}

void query_event() {
    on_both_kinds([](cudaStream_t stream) {
        Scene scene(stream);
        const cudaEvent_t before = make_event();
        const cudaEvent_t after = make_event();
        scene.compute();
        ORDER_CHECK(cudaEventRecord(before, stream));
        scene.free_something();
        scene.compute();
        ORDER_CHECK(cudaEventRecord(after, stream));
        const std::uint64_t waits = query_waits();
        ORDER_REQUIRE(not_ready(cudaEventQuery(after)), kWaits);
        ORDER_REQUIRE(query_waits() == waits, kWaits);
        ORDER_REQUIRE(cudaEventQuery(before) == cudaSuccess, kNotReady);
        ORDER_REQUIRE(not_ready(cudaEventQuery(after)), kWaits);
    });
}

void query_stream() {
    on_both_kinds([](cudaStream_t stream) {
        Scene scene(stream);
        scene.compute();
        scene.free_something();
        ORDER_REQUIRE(cudaStreamQuery(stream) == cudaSuccess, kNotReady);
        scene.compute();
        ORDER_REQUIRE(not_ready(cudaStreamQuery(stream)), kWaits);
    });
}

/// Nothing is waited for that was submitted after the free: here the host itself is to end it.
void query_stream_at_work() {
    Scene scene(make_stream());
    const cudaStream_t writer = make_stream();
    Byte* const flag = allocate(512);
    ORDER_CHECK(cudaMemset(flag, 0, 512));
    drain();
    scene.free_something();
    ORDER_CHECK(cuStreamWaitValue32(scene.stream, reinterpret_cast<CUdeviceptr>(flag), 1,
                                    CU_STREAM_WAIT_VALUE_GEQ));
    ORDER_REQUIRE(not_ready(cudaStreamQuery(scene.stream)), kWaits);
    ORDER_CHECK(cuStreamWriteValue32(writer, reinterpret_cast<CUdeviceptr>(flag), 1, 0));
    ORDER_CHECK(cudaStreamSynchronize(scene.stream));
    release(flag);
}

void elapsed_time() {
    on_both_kinds([](cudaStream_t stream) {
        Scene scene(stream);
        const cudaEvent_t start = make_event();
        const cudaEvent_t end = make_event();
        ORDER_CHECK(cudaEventRecord(start, stream));
        scene.compute();
        ORDER_CHECK(cudaEventRecord(end, stream));
        scene.free_something();
        float ms = 0;
        ORDER_REQUIRE(cudaEventElapsedTime(&ms, start, end) == cudaSuccess, kNotReady);
        ORDER_REQUIRE(ms > 0, kWrongContent);
    });
}

constexpr Case kCases[] = {
    {"host_copy_runtime", look_after<0>},
    {"host_copy_driver", look_after<1>},
    {"host_copy_inferred", look_after<2>},
    {"host_copy_plane", look_after<3>},
    {"host_copy_unified_plane", look_after<4>},
    {"host_copy_volume", look_after<5>},
    {"host_copy_batch", look_after<6>},
    {"host_graph_copy", look_after<7>},
    {"host_graph_function", look_after<8>},
    {"host_graph_in_graph", look_after<9>},
    {"host_function", look_after<10>},
    {"host_callback", look_after<11>},
    {"host_copy_pageable", look_after_pageable_copy},
    {"host_destroyed_stream", look_after_destroyed_stream},
    {"host_gone_thread", look_after_gone_thread},
    {"host_beside_capture", look_beside_capture},
    {"host_changed_graph", look_after_changed_graph},
    {"host_managed", look_at_managed},
    {"host_mapped", look_at_mapped},
    {"host_query_event", query_event},
    {"host_query_stream", query_stream},
    {"host_query_stream_at_work", query_stream_at_work},
    {"host_elapsed_time", elapsed_time},
};

} // namespace

std::span<const Case> host_cases() {
    return kCases;
}

} // namespace order
