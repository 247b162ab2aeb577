// free:auto. Frees that need not wait: the program has synchronised with all that the host may look
// at, in every way that CUDA offers, and the stream is at work again.
#include "tests/order/host_scene.h"

#include "tests/simcuda/control.h"

#include <cstdio>
#include <deque>
#include <utility>
#include <vector>

namespace order {

namespace {

cudaEvent_t recorded(cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    ORDER_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ORDER_CHECK(cudaEventRecord(event, stream));
    return event;
}

/// Asks until it is so; virtual time passes meanwhile.
template <class Ask>
void poll(Ask ask) {
    for (;;) {
        const cudaError_t answer = ask();
        if (answer == cudaSuccess) return;
        ORDER_REQUIRE(not_ready(answer), kCallFailed);
        simcuda::control::advance_ns(kLateNs / 8);
    }
}

// --- The ways to synchronise. The stream goes on working in the middle where that shows more.

void by_stream(Scene& s) {
    ORDER_CHECK(cudaStreamSynchronize(s.stream));
}
void by_event(Scene& s) {
    const cudaEvent_t event = recorded(s.stream);
    s.compute(kOld);
    ORDER_CHECK(cudaEventSynchronize(event));
}
/// Another stream waits for the event, and that stream or an event of it is waited for.
void by_other_stream(Scene& s) {
    const cudaStream_t other = make_stream();
    ORDER_CHECK(cudaStreamWaitEvent(other, recorded(s.stream), 0));
    s.compute(kOld);
    ORDER_CHECK(cudaStreamSynchronize(other));
}
void by_event_of_other_stream(Scene& s) {
    const cudaStream_t other = make_stream();
    ORDER_CHECK(cudaStreamWaitEvent(other, recorded(s.stream), 0));
    s.compute(kOld);
    ORDER_CHECK(cudaEventSynchronize(recorded(other)));
}
void by_context(Scene&) {
    ORDER_CHECK(cudaDeviceSynchronize());
}
void by_stream_query(Scene& s) {
    poll([&] { return cudaStreamQuery(s.stream); });
}
void by_event_query(Scene& s) {
    const cudaEvent_t event = recorded(s.stream);
    s.compute(kOld);
    poll([&] { return cudaEventQuery(event); });
}
/// On the legacy stream, which waits for blocking ones.
void by_blocking_copy(Scene& s) {
    Byte byte = 0;
    ORDER_CHECK(cudaMemcpy(&byte, s.block, 1, cudaMemcpyDeviceToHost));
}

struct Way {
    const char* name;
    void (*synchronize)(Scene&);
    bool blocking_streams_only;
};
constexpr Way kWays[] = {
    {"stream", by_stream, false},
    {"event", by_event, false},
    {"other stream", by_other_stream, false},
    {"event of other stream", by_event_of_other_stream, false},
    {"context", by_context, false},
    {"stream query", by_stream_query, false},
    {"event query", by_event_query, false},
    {"blocking copy", by_blocking_copy, true},
};

void one_settled(const HostWork& work, const Way& way, unsigned flags) {
    std::printf("%s, synchronised by %s, stream flags %u\n", work.name, way.name, flags);
    Scene scene(make_stream(flags));
    scene.compute();
    work.start(scene);
    way.synchronize(scene);
    scene.look();
    scene.compute(kOld); // the stream is at work again
    const std::uint64_t before = native_waits();
    scene.free_something();
    ORDER_REQUIRE(native_waits() == before, kWaits);
    ORDER_CHECK(cudaStreamSynchronize(scene.stream));
}

void settled() {
    for (std::size_t i = 0; i < kHostWorks; ++i) {
        for (const Way& way : kWays) {
            one_settled(host_work(i), way, cudaStreamDefault);
            if (!way.blocking_streams_only) {
                one_settled(host_work(i), way, cudaStreamNonBlocking);
            }
        }
    }
}

/// What only seems to synchronise does not: another stream, an event from before, a wait that came
/// before the work.
void not_settled() {
    using Seem = void (*)(Scene&, cudaEvent_t earlier);
    constexpr Seem kSeeming[] = {
        [](Scene&, cudaEvent_t) { ORDER_CHECK(cudaStreamSynchronize(make_stream())); },
        [](Scene&, cudaEvent_t earlier) { ORDER_CHECK(cudaEventSynchronize(earlier)); },
        [](Scene& s, cudaEvent_t earlier) {
            const cudaStream_t other = make_stream();
            ORDER_CHECK(cudaStreamWaitEvent(other, earlier, 0));
            const cudaEvent_t after = recorded(other);
            ORDER_CHECK(cudaStreamWaitEvent(other, recorded(s.stream), 0));
            ORDER_CHECK(cudaEventSynchronize(after));
        },
        [](Scene& s, cudaEvent_t) {
            const cudaEvent_t again = recorded(s.stream);
            ORDER_CHECK(cudaEventRecord(again, make_stream())); // it stands for nothing now
            ORDER_CHECK(cudaEventSynchronize(again));
        },
        [](Scene& s, cudaEvent_t) {
            const cudaEvent_t again = recorded(s.stream);
            CUgraph graph = nullptr; // likewise, out of a graph
            CUgraphNode node = nullptr;
            CUgraphExec made = nullptr;
            ORDER_CHECK(cuGraphCreate(&graph, 0));
            ORDER_CHECK(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, again));
            ORDER_CHECK(cuGraphInstantiate(&made, graph, 0));
            ORDER_CHECK(cuGraphLaunch(made, make_stream()));
            ORDER_CHECK(cudaEventSynchronize(again));
        },
        [](Scene& s, cudaEvent_t) {
            cudaEvent_t gone = recorded(s.stream);
            ORDER_CHECK(cudaEventDestroy(gone)); // its handle may come back, never recorded
            ORDER_CHECK(cudaEventCreateWithFlags(&gone, cudaEventDisableTiming));
            ORDER_CHECK(cudaEventSynchronize(gone));
        },
    };
    for (const Seem seem : kSeeming) {
        Scene scene(make_stream());
        scene.compute();
        const cudaEvent_t earlier = recorded(scene.stream);
        scene.compute();
        host_work(0).start(scene);
        seem(scene, earlier);
        scene.free_something();
        scene.look();
    }
}

/// A free on one device natively waits for nothing on another.
void other_device() {
    Byte* const here = allocate();
    ORDER_CHECK(cudaSetDevice(1));
    Scene scene(make_stream());
    scene.compute();
    host_work(0).start(scene);
    ORDER_CHECK(cudaSetDevice(0));
    release(here);
    ORDER_CHECK(cudaSetDevice(1));
    scene.free_something();
    scene.look();
}

/// PyTorch without its caches: pinned input copied asynchronously and given back once an event says
/// so, many kernels with temporaries, and a scalar copied back and waited for in each step.
void loop_like_pytorch() {
    const cudaStream_t stream = make_stream(cudaStreamDefault);
    for (int extra = 0; extra < 32; ++extra) // cuDNN's and NCCL's, which mostly lie idle
        make_stream();
    void* item = nullptr;
    ORDER_CHECK(cudaHostAlloc(&item, 4, cudaHostAllocDefault));
    struct Input {
        void* pinned;
        cudaEvent_t copied;
    };
    std::deque<Input> in_use;
    std::vector<void*> spare;
    for (int step = 0; step < 8; ++step) {
        while (!in_use.empty() && cudaEventQuery(in_use.front().copied) == cudaSuccess) {
            spare.push_back(in_use.front().pinned);
            ORDER_CHECK(cudaEventDestroy(in_use.front().copied));
            in_use.pop_front();
        }
        void* pinned = nullptr;
        if (spare.empty()) {
            ORDER_CHECK(cudaMallocHost(&pinned, kBytes));
        } else {
            pinned = spare.back();
            spare.pop_back();
        }
        Byte* const input = allocate();
        ORDER_CHECK(cudaMemcpyAsync(input, pinned, kBytes, cudaMemcpyHostToDevice, stream));
        in_use.push_back({pinned, recorded(stream)});
        Byte* last = input;
        for (int layer = 0; layer < 40; ++layer) {
            Byte* const out = allocate();
            ORDER_CHECK(read_late(stream, last, out, kBytes, 20'000));
            release(last); // as soon as the host has queued its last use
            last = out;
        }
        ORDER_CHECK(cudaMemcpyAsync(item, last, 4, cudaMemcpyDeviceToHost, stream));
        ORDER_CHECK(cudaStreamSynchronize(stream));
        simcuda::control::host_access(item, 4, false);
        release(last);
    }
    ORDER_REQUIRE(native_waits() == 0 && query_waits() == 0, kWaits);
    drain();
}

/// CuPy without its pool: everything on the legacy stream, results fetched by blocking copies and
/// by asynchronous ones to pageable memory.
void loop_like_cupy() {
    std::vector<Byte> result(kBytes);
    for (int step = 0; step < 8; ++step) {
        Byte* last = allocate();
        ORDER_CHECK(cudaMemset(last, kNew, kBytes));
        for (int i = 0; i < 40; ++i) {
            Byte* const out = allocate();
            ORDER_CHECK(read_late(nullptr, last, out, kBytes, 20'000));
            release(last);
            last = out;
        }
        if (step % 2 == 0) {
            ORDER_CHECK(cudaMemcpy(result.data(), last, kBytes, cudaMemcpyDeviceToHost));
        } else {
            ORDER_CHECK(
                cudaMemcpyAsync(result.data(), last, kBytes, cudaMemcpyDeviceToHost, nullptr));
            ORDER_CHECK(cudaStreamSynchronize(nullptr));
        }
        release(last);
        ORDER_REQUIRE(result[0] == kNew && result[kBytes - 1] == kNew, kWrongContent);
    }
    ORDER_REQUIRE(native_waits() == 0 && query_waits() == 0, kWaits);
    drain();
}

constexpr Case kCases[] = {
    {"host_settled", settled},
    {"host_not_settled", not_settled},
    {"host_other_device", other_device},
    {"host_loop_like_pytorch", loop_like_pytorch},
    {"host_loop_like_cupy", loop_like_cupy},
};

} // namespace

std::span<const Case> host_quiet_cases() {
    return kCases;
}

} // namespace order
