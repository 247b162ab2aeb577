// One program per ordering rule: the next user of a freed block would meet the former one if the
// rule were not there.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

namespace order {

namespace {

/// A block that a kernel on `reader` is still reading, late.
Byte* block_read_late(cudaStream_t reader, Byte* out) {
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    return block;
}

/// Two streams that know nothing of one another.
void next_stream() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const block = reuse(block_read_late(reader, out));
    ORDER_CHECK(fill(writer, block, kNew, kBytes, 0));
    drain();
}

/// With one stream at work the pool takes another way: one barrier for everything freed so far.
void legacy_stream() {
    const cudaStream_t reader = make_stream();
    Byte* const out = allocate();
    Byte* const block = reuse(block_read_late(reader, out));
    ORDER_CHECK(cudaMemset(block, kNew, kBytes));
    drain();
}

/// The first free's event finishes at once. It was recorded before the reader was queued, so it
/// must not settle the second free, whose stamp equals the event's number.
void numbering() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const small = allocate(512);
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    release(small);
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    Byte* const again = reuse(block);
    ORDER_CHECK(fill(writer, again, kNew, kBytes, 0));
    drain();
}

/// Writes a block of device 0 from device 1, which no barrier on device 0 holds up.
void write_from_second_device(Byte* block) {
    ORDER_CHECK(cudaSetDevice(1));
    Byte* const source = allocate();
    const cudaStream_t stream = make_stream();
    ORDER_CHECK(cudaMemcpyPeerAsync(block, 0, source, 1, kBytes, stream));
    drain();
    ORDER_CHECK(cudaSetDevice(0));
    drain();
}

/// Two contexts from the start.
void finished_level() {
    ORDER_CHECK(cudaSetDevice(1));
    ORDER_CHECK(cudaFree(nullptr));
    ORDER_CHECK(cudaSetDevice(0));
    const cudaStream_t reader = make_stream();
    make_stream();
    Byte* const out = allocate();
    write_from_second_device(reuse(block_read_late(reader, out)));
}

/// The second context comes when the block has already been handed out behind a barrier.
void transition_sync() {
    const cudaStream_t reader = make_stream();
    make_stream();
    Byte* const out = allocate();
    write_from_second_device(reuse(block_read_late(reader, out)));
}

/// The same, the writer being a kernel through peer access.
void transition_peer() {
    const cudaStream_t reader = make_stream();
    make_stream();
    Byte* const out = allocate();
    Byte* const block = reuse(block_read_late(reader, out));
    ORDER_CHECK(cudaSetDevice(1));
    ORDER_CHECK(cudaDeviceEnablePeerAccess(0, 0));
    ORDER_CHECK(fill(make_stream(), block, kNew, kBytes, 0));
    drain();
    ORDER_CHECK(cudaSetDevice(0));
    drain();
}

/// What another process does that has imported the block, or an adapter that has it registered: it
/// writes without any call of ours.
void write_from_outside(Byte* block) {
    simcuda::control::host_access(block, kBytes, true);
}

/// The block is exported when it has already been handed out behind a barrier.
void transition_export() {
    const cudaStream_t reader = make_stream();
    make_stream();
    Byte* const out = allocate();
    Byte* const block = reuse(block_read_late(reader, out));
    cudaIpcMemHandle_t handle{};
    ORDER_CHECK(cudaIpcGetMemHandle(&handle, block));
    write_from_outside(block);
    drain();
}

/// Or registered with such an adapter; no rule's switch concerns that.
void registered() {
    const cudaStream_t reader = make_stream();
    make_stream();
    Byte* const out = allocate();
    Byte* const block = reuse(block_read_late(reader, out));
    const unsigned on = 1;
    ORDER_CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                      reinterpret_cast<CUdeviceptr>(block)));
    write_from_outside(block);
    drain();
}

/// A write-value must not wait, so the step down is completed later: until then nothing that a
/// barrier settled before (`small`, here) is handed out.
void transition_hold() {
    constexpr std::size_t kSmall = std::size_t{1} << 20; // cannot serve, nor be cut from, a kBytes
    const cudaStream_t reader = make_stream();
    const cudaStream_t writer = make_stream();
    Byte* const out = allocate();
    Byte* const small = allocate(kSmall);
    Byte* const flag = allocate(512); // the rest of small's segment is less than kSmall
    ORDER_CHECK(cudaMemset(small, kOld, kSmall));
    Byte* const block = block_read_late(reader, out);
    ORDER_CHECK(read_late(reader, small, out, kSmall, kLateNs));
    release(small);
    reuse(block); // its barrier covers both
    ORDER_CHECK(cuStreamWriteValue32(writer, reinterpret_cast<CUdeviceptr>(flag), 1, 0));
    Byte* const next = allocate(kSmall);
    cudaIpcMemHandle_t handle{};
    ORDER_CHECK(cudaIpcGetMemHandle(&handle, next));
    write_from_outside(next);
    drain();
    bool reused = next == small;
    for (int i = 0; i < 4 && !reused; ++i) // the pool asks for few events at a time
        reused = allocate(kSmall) == small;
    ORDER_REQUIRE(reused, kNotReused);
}

/// Two streams ordered by nothing but what a cudaFree between them natively waits for.
template <class Free>
void ordered_by_a_free(Free free_something) {
    const cudaStream_t first = make_stream();
    const cudaStream_t second = make_stream();
    Byte* const result = allocate();
    Byte* const copy = allocate();
    Byte* const unrelated = allocate();
    drain();
    ORDER_CHECK(fill(first, result, kNew, kBytes, kLateNs));
    free_something(unrelated);
    ORDER_CHECK(read_late(second, result, copy, kBytes, 0));
    drain();
}

void device_order() {
    ordered_by_a_free(release);
}

/// Where no barrier holds up later work, the host waits.
void device_order_finished() {
    ORDER_CHECK(cudaSetDevice(1));
    ORDER_CHECK(cudaFree(nullptr));
    ORDER_CHECK(cudaSetDevice(0));
    ordered_by_a_free(release);
}

/// So it does beside another stream's capture, where nothing can be recorded.
void device_order_beside_capture() {
    const cudaStream_t captured = make_stream();
    ordered_by_a_free([&](Byte* block) {
        ORDER_CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
        release(block);
        cudaGraph_t graph = nullptr;
        ORDER_REQUIRE(cudaStreamEndCapture(captured, &graph) == cudaSuccess, kCaptureBroken);
    });
}

constexpr Case kCases[] = {
    {"fence", next_stream},
    {"fence_legacy", legacy_stream},
    {"barrier", next_stream},
    {"barrier_legacy", legacy_stream},
    {"numbering", numbering},
    {"finished_level", finished_level},
    {"transition_sync", transition_sync},
    {"transition_peer", transition_peer},
    {"transition_export", transition_export},
    {"transition_hold", transition_hold},
    {"registered", registered},
    {"device_order", device_order},
    {"device_order_finished", device_order_finished},
    {"device_order_beside_capture", device_order_beside_capture},
};

} // namespace

std::span<const Case> rule_cases() {
    return kCases;
}

} // namespace order
