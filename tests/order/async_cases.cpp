// Stream-ordered calls, served from the pool: which stream gets what another one freed, and when.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <array>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

namespace order {

namespace {

namespace control = simcuda::control;

Byte* allocate_on(cudaStream_t stream, std::size_t bytes = kBytes) {
    void* block = nullptr;
    ORDER_CHECK(cudaMallocAsync(&block, bytes, stream));
    return static_cast<Byte*>(block);
}

void free_on(cudaStream_t stream, Byte* block) {
    ORDER_CHECK(cudaFreeAsync(block, stream));
}

/// A block of `stream` that a kernel on it still reads, and that is freed behind that kernel.
Byte* freed_behind_reader(cudaStream_t stream, Byte* out) {
    Byte* const block = allocate_on(stream);
    ORDER_CHECK(cudaMemsetAsync(block, kOld, kBytes, stream));
    ORDER_CHECK(read_late(stream, block, out, kBytes, kLateNs));
    free_on(stream, block);
    return block;
}

std::uint64_t driver_calls() {
    return control::calls("cuMemAllocAsync") + control::calls("cuMemAllocAsync_ptsz") +
           control::calls("cuMemAllocFromPoolAsync");
}

/// A plain allocation does not get a block whose stream has not come to its free, and gets it
/// afterwards.
void plain_after_stream() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const block = freed_behind_reader(reader, out);
    Byte* const next = allocate();
    ORDER_CHECK(fill(writer, next, kNew, kBytes, 0));
    drain();
    ORDER_REQUIRE(next == block || allocate() == block, kNotReused);
}

/// Nor does another stream.
void stream_after_stream() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const block = freed_behind_reader(reader, out);
    Byte* const next = allocate_on(writer);
    ORDER_CHECK(fill(writer, next, kNew, kBytes, 0));
    drain();
    ORDER_REQUIRE(next == block || allocate_on(writer) == block, kNotReused);
}

/// Unless there is no other memory: then it waits on the device.
void stream_without_memory() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const block = allocate_on(reader);
    void* rest = nullptr;
    while (cudaMalloc(&rest, kBytes) == cudaSuccess) {
    }
    (void)cudaGetLastError();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    free_on(reader, block);
    Byte* const next = allocate_on(writer);
    ORDER_REQUIRE(next == block, kNotReused);
    ORDER_CHECK(fill(writer, next, kNew, kBytes, 0));
    drain();
}

/// What a classic call freed: beyond the slack one stream waits for its fence.
void stream_after_plain_free() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    release(block);
    Byte* const next = allocate_on(writer);
    ORDER_REQUIRE(next == block, kNotReused);
    ORDER_REQUIRE(control::calls("cuCtxWaitEvent") == 0, kWaited);
    ORDER_CHECK(fill(writer, next, kNew, kBytes, 0));
    drain();
}

/// The stream is gone when its handle comes back for another one, whose work knows nothing of it.
void handle_comes_back() {
    const cudaStream_t reader = make_stream();
    Byte* const out = allocate();
    Byte* const block = freed_behind_reader(reader, out);
    ORDER_CHECK(cudaStreamDestroy(reader));
    const cudaStream_t writer = make_stream();
    ORDER_REQUIRE(writer == reader, kNotReused);
    Byte* const next = allocate_on(writer);
    ORDER_CHECK(fill(writer, next, kNew, kBytes, 0));
    drain();
    ORDER_REQUIRE(next == block || allocate() == block, kNotReused);
}

/// All threads call their default stream by one handle.
void per_thread_streams() {
    make_stream();
    Byte* const out = allocate();
    Byte* block = nullptr;
    std::thread([&] { block = freed_behind_reader(cudaStreamPerThread, out); }).join();
    std::thread([&] {
        Byte* const next = allocate_on(cudaStreamPerThread);
        ORDER_CHECK(fill(cudaStreamPerThread, next, kNew, kBytes, 0));
    }).join();
    drain();
    ORDER_REQUIRE(block != nullptr, kNotReused);
}

/// A stream gets its own block back at once, without a wait or a question, whatever its kind.
void own_stream() {
    make_stream();
    make_stream();
    Byte* const out = allocate();
    for (const cudaStream_t stream :
         {make_stream(), make_stream(cudaStreamDefault), cudaStream_t{nullptr}, cudaStreamLegacy,
          cudaStreamPerThread}) {
        Byte* const block = freed_behind_reader(stream, out);
        const std::uint64_t asked = control::calls("cuEventQuery");
        const std::uint64_t waits = control::calls("cuStreamWaitEvent");
        Byte* const again = allocate_on(stream);
        ORDER_REQUIRE(again == block, kNotReused);
        ORDER_REQUIRE(control::calls("cuEventQuery") == asked, kWaited);
        ORDER_REQUIRE(control::calls("cuStreamWaitEvent") == waits, kWaited);
        ORDER_CHECK(fill(stream, again, kNew, kBytes, 0));
        free_on(stream, again);
        drain();
    }
    ORDER_REQUIRE(driver_calls() == 0, kNotServed);
}

struct Way {
    const char* name;
    std::function<Byte*(cudaStream_t)> allocate;
    std::function<void(cudaStream_t, Byte*)> free;
};

/// Every kind of stream, allocation and free, followed by every kind of next owner.
void all_ways() {
    const cudaStream_t other = make_stream();
    const cudaStream_t streams[] = {make_stream(), make_stream(cudaStreamDefault), nullptr,
                                    cudaStreamLegacy, cudaStreamPerThread};
    const auto plain = [](cudaStream_t) { return allocate(); };
    const auto plain_free = [](cudaStream_t, Byte* block) { release(block); };
    const auto on = [](cudaStream_t stream) { return allocate_on(stream); };
    const Way ways[] = {{"async, async", on, free_on},
                        {"async, plain", on,
                         [](cudaStream_t stream, Byte* block) {
                             // cudaFree of such memory takes for granted that its users are done
                             ORDER_CHECK(cudaStreamSynchronize(stream));
                             release(block);
                         }},
                        {"plain, async", plain, free_on},
                        {"plain, plain", plain, plain_free}};
    const std::vector<Byte> expected(4096, kNew);
    std::vector<Byte> content(expected.size());
    for (const cudaStream_t stream : streams) {
        Byte* const out = allocate(); // what streams read into is no two streams'
        for (const Way& way : ways) {
            for (const Way& next : ways) {
                for (const cudaStream_t next_stream : {stream, other, cudaStreamLegacy}) {
                    const std::uint64_t races = control::races();
                    Byte* const block = way.allocate(stream);
                    ORDER_CHECK(cudaMemsetAsync(block, kOld, kBytes, stream));
                    ORDER_CHECK(read_late(stream, block, out, kBytes, kLateNs));
                    way.free(stream, block);
                    Byte* const again = next.allocate(next_stream);
                    ORDER_CHECK(fill(next_stream, again, kNew, kBytes, 0));
                    ORDER_CHECK(cudaMemcpyAsync(content.data(), again, content.size(),
                                                cudaMemcpyDeviceToHost, next_stream));
                    ORDER_CHECK(cudaStreamSynchronize(next_stream));
                    ORDER_REQUIRE(content == expected, kWrongContent);
                    next.free(next_stream, again);
                    if (control::races() != races) {
                        std::fprintf(stderr, "race: %s, then %s\n", way.name, next.name);
                    }
                }
            }
        }
    }
    drain();
}

/// Several threads, each with a stream of its own, that allocate on it and free on another's.
void async_among_threads() {
    constexpr std::size_t kThreads = 4;
    std::array<cudaStream_t, kThreads> streams{};
    for (cudaStream_t& stream : streams)
        stream = make_stream();
    std::array<std::thread, kThreads> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
        threads[i] = std::thread([&, i] {
            const cudaStream_t mine = streams[i];
            const cudaStream_t next = streams[(i + 1) % kThreads];
            cudaEvent_t event = nullptr;
            ORDER_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            for (int round = 0; round < 30; ++round) {
                Byte* const block = allocate_on(mine);
                ORDER_CHECK(fill(mine, block, kNew, kBytes, kLateNs / 10));
                switch (round % 3) {
                case 0:
                    free_on(mine, block);
                    break;
                case 1:
                    ORDER_CHECK(cudaEventRecord(event, mine));
                    ORDER_CHECK(cudaStreamWaitEvent(next, event, 0));
                    free_on(next, block);
                    break;
                default:
                    ORDER_CHECK(cudaStreamSynchronize(mine));
                    release(block);
                }
                Byte* const plain = allocate();
                ORDER_CHECK(fill(cudaStreamPerThread, plain, kOld, kBytes, 0));
                release(plain);
            }
            ORDER_CHECK(cudaEventDestroy(event));
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    drain();
}

/// Natively a cudaFree of such memory does not wait.
void plain_free_of_async() {
    const cudaStream_t stream = make_stream();
    const cudaStream_t busy = make_stream();
    Byte* const out = allocate();
    Byte* const in = allocate();
    Byte* const block = allocate_on(stream);
    ORDER_CHECK(cudaMemset(in, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(busy, in, out, kBytes, kLateNs));
    release(block);
    ORDER_REQUIRE(cudaStreamQuery(busy) == cudaErrorNotReady, kWaited);
    (void)cudaGetLastError();
    drain();
}

/// Calls of ours that fail: a free that could not be ordered did not happen, or is ordered another
/// way; an allocation finds other memory. Nothing is handed out too early.
void failures() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    const auto busy = [&](Byte* block) {
        ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    };
    const auto overwrite = [&](Byte* block) {
        ORDER_CHECK(fill(writer, block, kNew, kBytes, 0));
        drain();
        release(block);
    };
    Byte* block = allocate_on(reader);
    busy(block);
    control::fail("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY); // a fence takes its place
    free_on(reader, block);
    overwrite(allocate_on(writer));

    block = allocate_on(reader);
    busy(block);
    control::fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY);
    ORDER_REQUIRE(cudaFreeAsync(block, reader) == cudaErrorMemoryAllocation, kCallFailed);
    (void)cudaGetLastError();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs)); // still the program's
    free_on(reader, block);
    control::fail("cuEventQuery", 1, CUDA_ERROR_OUT_OF_MEMORY, 3);
    overwrite(allocate_on(writer));

    block = allocate_on(reader);
    busy(block);
    control::fail("cuEventRecord", 1, CUDA_ERROR_INVALID_HANDLE); // no fault either: a fence
    free_on(reader, block);
    overwrite(allocate_on(writer));

    block = allocate();
    busy(block);
    release(block);
    control::fail("cuStreamWaitEvent", 1, CUDA_ERROR_OUT_OF_MEMORY);
    overwrite(allocate_on(writer));

    control::fail("cuStreamGetId", 1, CUDA_ERROR_INVALID_VALUE); // then the driver serves it
    const std::uint64_t before = driver_calls();
    const cudaStream_t unknown = make_stream();
    block = allocate_on(unknown);
    ORDER_REQUIRE(driver_calls() != before, kNotServed);
    free_on(unknown, block);
    drain();
}

/// Beside an open capture the driver serves, and what is freed is set aside until it has ended.
void beside_capture() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    const cudaStream_t captured = make_stream();
    Byte* const out = allocate();
    Byte* const block = allocate_on(reader);
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    ORDER_CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    free_on(reader, block);
    const std::uint64_t before = driver_calls();
    Byte* const inside = allocate_on(writer);
    ORDER_REQUIRE(driver_calls() != before, kNotServed);
    ORDER_CHECK(fill(writer, inside, kNew, kBytes, 0));
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(captured, &graph) != cudaSuccess) {
        stop(kCaptureBroken, "the capture is valid", __LINE__);
    }
    Byte* const next = allocate_on(writer);
    ORDER_CHECK(fill(writer, next, kNew, kBytes, 0));
    free_on(writer, inside);
    drain();
    bool reused = next == block;
    for (int i = 0; i < 64 && !reused; ++i) // what is left of a segment may serve first
        reused = allocate_on(writer) == block;
    ORDER_REQUIRE(reused, kNotReused);
}

/// What is left under the number of a stream that is gone serves everybody, once it is done.
void stream_is_gone() {
    const cudaStream_t first = make_stream();
    Byte* const out = allocate();
    Byte* const block = freed_behind_reader(first, out);
    ORDER_CHECK(cudaStreamDestroy(first));
    drain();
    ORDER_REQUIRE(allocate() == block, kNotReused);
}

constexpr Case kCases[] = {
    {"stream_event_plain", plain_after_stream},
    {"stream_event", stream_after_stream},
    {"stream_event_fence", stream_after_plain_free},
    {"stream_event_scarce", stream_without_memory},
    {"stream_identity", handle_comes_back},
    {"stream_identity_threads", per_thread_streams},
    {"async_own_stream", own_stream},
    {"async_matrix", all_ways},
    {"async_threads", async_among_threads},
    {"async_plain_free", plain_free_of_async},
    {"async_failures", failures},
    {"async_beside_capture", beside_capture},
    {"async_stream_gone", stream_is_gone},
};

} // namespace

std::span<const Case> async_cases() {
    return kCases;
}

} // namespace order
