// Programs that run natively and so must not hang: work before a free depends on something that
// natively still goes on while a free waits, or on something behind calls that natively never wait.
//
// A stream that waits for a value stands for a persistent kernel that spins on a flag.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <atomic>
#include <thread>
#include <vector>

namespace order {

namespace {

namespace control = simcuda::control;

struct Flag {
    cuuint32_t* host = nullptr;
    CUdeviceptr at = 0;
    Flag() {
        ORDER_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&host), sizeof *host, 0));
        *host = 0;
        ORDER_CHECK(cuMemHostGetDevicePointer(&at, host, 0));
    }
    void await(cudaStream_t stream) const {
        ORDER_CHECK(cuStreamWaitValue32(stream, at, 1, CU_STREAM_WAIT_VALUE_EQ));
    }
    void write(cudaStream_t stream) const { ORDER_CHECK(cuStreamWriteValue32(stream, at, 1, 0)); }
};

/// A persistent kernel on `held`, a free, an allocation of the size; another thread ends the kernel
/// once this one waits (natively in the free, here perhaps in the allocation) or has passed.
void stop_from_other_thread(const Flag& flag, cudaStream_t held, cudaStream_t writer, Byte* block) {
    std::atomic<bool> passed{false};
    flag.await(held);
    const std::uint64_t polls = control::calls("cuEventQuery");
    std::thread other([&] {
        while (!passed.load() && control::blocked_threads() == 0 &&
               control::calls("cuEventQuery") < polls + 100) {
            std::this_thread::yield();
        }
        flag.write(writer);
    });
    release(block);
    Byte* const next = allocate();
    passed.store(true);
    other.join();
    ORDER_CHECK(cudaMemset(next, kNew, kBytes));
    drain();
}

/// The program has used write-values before.
void write_value_again() {
    const cudaStream_t held = make_stream();
    const cudaStream_t writer = make_stream();
    const Flag warm_up;
    const Flag flag;
    warm_up.write(writer);
    Byte* const block = allocate();
    drain();
    stop_from_other_thread(flag, held, writer, block);
}

/// This one is its first. Known limit: the allocation's barrier, taken when nothing spoke against
/// it, holds up the write that would end the kernel.
void write_value_first() {
    const cudaStream_t held = make_stream();
    const cudaStream_t writer = make_stream();
    const Flag flag;
    Byte* const block = allocate();
    drain();
    stop_from_other_thread(flag, held, writer, block);
}

/// cudaFreeAsync never waits, so what follows it may end the kernel before it.
void free_async(bool expect_reuse) {
    const cudaStream_t held = make_stream();
    const cudaStream_t other = make_stream();
    const Flag flag;
    Byte* const block = allocate();
    drain();
    flag.await(held);
    ORDER_CHECK(cudaFreeAsync(block, held));
    Byte* const next = allocate();
    ORDER_CHECK(fill(other, next, kNew, kBytes, 0));
    ORDER_CHECK(cudaMemsetAsync(flag.host, 1, 1, other));
    drain();
    if (expect_reuse && next != block) ORDER_REQUIRE(allocate() == block, kNotReused);
}

/// An allocation in the order of another stream does not wait for that free either.
void malloc_async() {
    const cudaStream_t held = make_stream();
    const cudaStream_t other = make_stream();
    const Flag flag;
    Byte* const block = allocate();
    drain();
    flag.await(held);
    ORDER_CHECK(cudaFreeAsync(block, held));
    void* next = nullptr;
    ORDER_CHECK(cudaMallocAsync(&next, kBytes, other));
    ORDER_CHECK(fill(other, static_cast<Byte*>(next), kNew, kBytes, 0));
    ORDER_CHECK(cudaMemsetAsync(flag.host, 1, 1, other));
    drain();
}

/// The same with one created stream, and a block in limbo that was freed before the kernel came:
/// only that block's own fence may be waited for, not the younger one of the cudaFreeAsync.
void free_async_one_stream() {
    const cudaStream_t held = make_stream();
    const Flag flag;
    Byte* const out = allocate();
    Byte* const early = allocate();
    Byte* const late = allocate();
    drain();
    ORDER_CHECK(read_late(cudaStreamPerThread, early, out, kBytes, kLateNs));
    release(early);
    flag.await(held);
    ORDER_CHECK(cudaFreeAsync(late, held));
    Byte* const next = allocate();
    ORDER_CHECK(fill(cudaStreamPerThread, next, kNew, kBytes, 0));
    ORDER_CHECK(cudaMemsetAsync(flag.host, 1, 1, cudaStreamPerThread));
    drain();
}

/// The same at level `finished`, where an allocation waits on the host.
void free_async_finished() {
    const cudaStream_t held = make_stream();
    const cudaStream_t other = make_stream();
    const Flag flag;
    Flag().write(other);
    Byte* const out = allocate();
    Byte* const early = allocate();
    Byte* const late = allocate();
    drain();
    ORDER_CHECK(read_late(other, early, out, kBytes, kLateNs));
    release(early);
    flag.await(held);
    ORDER_CHECK(cudaFreeAsync(late, held));
    ORDER_CHECK(fill(other, allocate(), kNew, kBytes, 0));
    flag.write(other);
    drain();
}

/// More frees than there are events, behind a kernel that has not ended.
void many_free_async() {
    const cudaStream_t held = make_stream();
    const cudaStream_t other = make_stream();
    const Flag flag;
    std::vector<Byte*> blocks(2500);
    for (Byte*& block : blocks)
        block = allocate(512);
    drain();
    flag.await(held);
    for (Byte* block : blocks)
        ORDER_CHECK(cudaFreeAsync(block, held));
    Byte* const next = allocate(512);
    ORDER_CHECK(fill(other, next, kNew, 512, 0));
    ORDER_CHECK(cudaMemsetAsync(flag.host, 1, 1, other));
    drain();
}

/// An allocation natively never waits: a fence of a free before the kernel was queued must not
/// come to cover the kernel.
void allocate_beside_kernel() {
    const cudaStream_t held = make_stream();
    const cudaStream_t other = make_stream();
    const Flag flag;
    Byte* const out = allocate();
    Byte* const block = allocate();
    drain();
    ORDER_CHECK(read_late(other, block, out, kBytes, kLateNs));
    release(block);
    flag.await(held);
    Byte* const again = allocate();
    ORDER_REQUIRE(again == block, kNotReused);
    ORDER_CHECK(fill(other, again, kNew, kBytes, 0));
    ORDER_CHECK(cudaMemsetAsync(flag.host, 1, 1, other));
    drain();
}

/// Making a second context, enabling peer access and exporting memory do not wait natively.
void second_context() {
    const cudaStream_t held = make_stream();
    const cudaStream_t other = make_stream();
    const Flag flag;
    Byte* const out = allocate();
    Byte* block = allocate();
    drain();
    ORDER_CHECK(read_late(other, block, out, kBytes, kLateNs));
    block = reuse(block);
    flag.await(held);
    ORDER_CHECK(cudaSetDevice(1));
    ORDER_CHECK(cudaDeviceEnablePeerAccess(0, 0));
    ORDER_CHECK(cudaSetDevice(0));
    cudaIpcMemHandle_t handle{};
    ORDER_CHECK(cudaIpcGetMemHandle(&handle, block));
    ORDER_CHECK(cudaMemsetAsync(flag.host, 1, 1, other));
    drain();
}

/// Two kernels that need one another, one before and one after allocations and queries.
void handshake() {
    const cudaStream_t first = make_stream();
    const cudaStream_t second = make_stream();
    const Flag there;
    const Flag back;
    cudaEvent_t event = nullptr;
    ORDER_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    std::vector<Byte*> blocks(8);
    for (Byte*& block : blocks)
        block = allocate();
    drain();
    for (Byte* block : blocks)
        release(block);
    there.await(first);
    ORDER_CHECK(cudaMemsetAsync(back.host, 1, 1, first));
    ORDER_CHECK(cudaEventRecord(event, first));
    for (Byte*& block : blocks)
        block = allocate();
    ORDER_REQUIRE(cudaEventQuery(event) == cudaErrorNotReady, kCallFailed);
    (void)cudaGetLastError();
    ORDER_CHECK(fill(second, blocks[0], kNew, kBytes, 0));
    ORDER_CHECK(cudaMemsetAsync(there.host, 1, 1, second));
    back.await(second);
    ORDER_CHECK(cudaStreamSynchronize(second));
    drain();
}

/// After a free the program asks about an event that stands for later work, which waits for the
/// host. The event was recorded before the free as well; of its last record the shim may know
/// nothing.
template <class Record>
void query_of_later_work(Record record) {
    const cudaStream_t only = make_stream(cudaStreamDefault);
    const Flag flag;
    Byte* const freed = allocate();
    Byte* const block = allocate();
    cudaEvent_t event = nullptr;
    ORDER_CHECK(cudaEventCreate(&event));
    ORDER_CHECK(cudaEventRecord(event, only));
    release(freed);
    flag.await(only);
    ORDER_CHECK(fill(only, block, kNew, kBytes, 0));
    record(event, only);
    ORDER_REQUIRE(cudaEventQuery(event) == cudaErrorNotReady, kCallFailed);
    *flag.host = 1;
    control::host_access(flag.host, sizeof *flag.host, true);
    ORDER_CHECK(cudaEventSynchronize(event));
    drain();
}

void query_over_context() {
    query_of_later_work([](cudaEvent_t event, cudaStream_t) {
        CUcontext context = nullptr;
        ORDER_CHECK(cuCtxGetCurrent(&context));
        ORDER_CHECK(cuCtxRecordEvent(context, event));
    });
}

void query_beside_capture() {
    query_of_later_work([](cudaEvent_t event, cudaStream_t only) {
        const cudaStream_t captured = make_stream();
        ORDER_CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
        ORDER_CHECK(cudaEventRecord(event, only));
        cudaGraph_t graph = nullptr;
        ORDER_CHECK(cudaStreamEndCapture(captured, &graph));
    });
}

/// So many events that the shim cannot remember each.
void query_of_many() {
    query_of_later_work([](cudaEvent_t event, cudaStream_t only) {
        ORDER_CHECK(cudaEventRecord(event, only));
        for (int i = 0; i < 20'000; ++i) {
            cudaEvent_t other = nullptr;
            ORDER_CHECK(cudaEventCreateWithFlags(&other, cudaEventDisableTiming));
            ORDER_CHECK(cudaEventRecord(other, only));
        }
    });
}

constexpr Case kCases[] = {
    {"finished_only", [] { free_async(true); }},
    {"hang_free_async", [] { free_async(false); }},
    {"hang_malloc_async", malloc_async},
    {"hang_write_value_again", write_value_again},
    {"limit_write_value_first", write_value_first},
    {"hang_free_async_one_stream", free_async_one_stream},
    {"hang_free_async_finished", free_async_finished},
    {"hang_many_free_async", many_free_async},
    {"hang_allocate_beside_kernel", allocate_beside_kernel},
    {"hang_second_context", second_context},
    {"hang_handshake", handshake},
    {"hang_query_over_context", query_over_context},
    {"hang_query_beside_capture", query_beside_capture},
    {"hang_query_of_many", query_of_many},
};

} // namespace

std::span<const Case> hang_cases() {
    return kCases;
}

} // namespace order
