// Contexts, threads, values, callbacks: who waits for whom.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fixture.h"

using namespace simtest;

namespace {

// Spins without a driver call until `count` host threads wait inside the driver.
void until_blocked(std::uint64_t count) {
    while (control::blocked_threads() < count) {
        std::this_thread::yield();
    }
}

struct Flag {
    void* host = nullptr;
    CUdeviceptr at = 0;
    Flag() {
        REQUIRE(cuMemAllocHost(&host, 64) == CUDA_SUCCESS);
        REQUIRE(cuMemHostGetDevicePointer(&at, host, 0) == CUDA_SUCCESS);
    }
};

} // namespace

TEST_CASE("while one thread waits in cuMemFree, another's submissions block and other calls pass") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUdeviceptr victim = alloc(4096);
    const CUdeviceptr second_victim = alloc(4096);
    const CUevent spare[] = {event(), event()};
    const CUstream unused = stream();
    const CUstream held = stream();
    const CUstream s = stream();
    const CUstream writer = stream();
    const CUevent e = event();
    const Flag flag;
    REQUIRE(cuEventRecord(e, writer) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(writer) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitValue32(held, flag.at, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    std::atomic<bool> released{false}; // the free can end from now on
    std::atomic<bool> freed{false};
    std::thread a([&] {
        cuCtxSetCurrent(device.ctx());
        CHECK(cuMemFree(victim) == CUDA_SUCCESS);
        freed = true;
    });
    until_blocked(1);
    std::atomic<int> early{0};
    std::atomic<int> failed{0};
    const auto blocks = [&](auto call) {
        return std::thread([&, call] {
            cuCtxSetCurrent(device.ctx());
            if (call() != CUDA_SUCCESS) {
                ++failed;
            }
            if (!released) {
                ++early;
            }
        });
    };
    std::vector<std::thread> threads;
    threads.push_back(blocks([&] { return launch_fill(s, p, 64, 1, 1000); }));
    threads.push_back(blocks([&] { return cuMemsetD8Async(p + 64, 0, 64, s); }));
    threads.push_back(blocks([&] { return cuMemcpyDtoDAsync(p + 128, p + 256, 64, s); }));
    threads.push_back(blocks([&] { return cuEventRecord(e, s); }));
    threads.push_back(blocks([] {
        CUdeviceptr q = 0;
        return cuMemAlloc(&q, 512);
    }));
    threads.push_back(blocks([] {
        CUstream t = nullptr;
        return cuStreamCreate(&t, 0);
    }));
    threads.push_back(blocks([] {
        void* q = nullptr;
        return cuMemAllocHost(&q, 64);
    }));
    threads.push_back(blocks([&] { return cuCtxRecordEvent(device.ctx(), spare[0]); }));
    threads.push_back(blocks([&] { return cuEventDestroy(spare[1]); }));
    threads.push_back(blocks([] {
        CUevent created = nullptr;
        return cuEventCreate(&created, CU_EVENT_DISABLE_TIMING);
    }));
    threads.push_back(blocks([&] { return cuStreamDestroy(unused); }));
    threads.push_back(blocks([&] {
        return cuLaunchHostFunc(
            s, [](void*) {}, nullptr);
    }));
    threads.push_back(blocks([&] { return cuMemFree(second_victim); }));
    until_blocked(1 + threads.size());
    // All of these return although the free still waits.
    CHECK(cuEventQuery(e) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(held) == CUDA_ERROR_NOT_READY);
    std::size_t bytes = 0;
    CHECK(cuMemGetInfo(&bytes, nullptr) == CUDA_SUCCESS);
    CUdeviceptr q = 0;
    CHECK(cuMemAllocAsync(&q, 512, writer) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(q, writer) == CUDA_SUCCESS);
    CHECK(cuMemFree(0) == CUDA_SUCCESS);
    CHECK(cuMemFree(p + 8) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemGetAddressRange(nullptr, nullptr, p) == CUDA_SUCCESS);
    CHECK(cuEventSynchronize(e) == CUDA_SUCCESS);
    CHECK(cuStreamWaitEvent(writer, e, 0) == CUDA_SUCCESS);
    CHECK(cuCtxWaitEvent(device.ctx(), e) == CUDA_SUCCESS);
    CHECK(!freed);
    CHECK(control::blocked_threads() == 1 + threads.size());
    released = true;
    REQUIRE(cuStreamWriteValue32(writer, flag.at, 1, 0) == CUDA_SUCCESS);
    a.join();
    for (auto& t : threads) {
        t.join();
    }
    CHECK(early == 0);
    CHECK(failed == 0);
}

TEST_CASE("cuMemFree waits for its own context only") {
    Device device;
    CUcontext second = nullptr;
    REQUIRE(cuCtxCreate(&second, nullptr, 0, 0) == CUDA_SUCCESS);
    const CUdeviceptr p = alloc(4096);
    REQUIRE(cuCtxPopCurrent(nullptr) == CUDA_SUCCESS);
    const CUdeviceptr busy = alloc(4096);
    REQUIRE(launch_fill(stream(), busy, 64, 1, 400 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent(second) == CUDA_SUCCESS);
    const std::uint64_t before = control::now_ns();
    CHECK(cuMemFree(p) == CUDA_SUCCESS);
    if (control::get("progress") == 0) {
        CHECK(control::now_ns() - before < kMs);
    }
    CHECK(cuCtxDestroy(second) == CUDA_SUCCESS);
    CUcontext current = nullptr;
    CHECK(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == device.ctx());
}

TEST_CASE("contexts: ids, states, dead handles") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    unsigned flags = 0;
    int active = 1;
    REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
    CUcontext a = nullptr;
    CUcontext b = nullptr;
    REQUIRE(cuDevicePrimaryCtxRetain(&a, 0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&b, 0) == CUDA_SUCCESS);
    CHECK(a == b);
    unsigned long long first = 0;
    unsigned long long second = 0;
    REQUIRE(cuCtxGetId(a, &first) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(a) == CUDA_SUCCESS);
    const CUdeviceptr p = alloc(512);
    REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 1);
    CHECK(cuMemsetD8(p, 0, 1) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(cuMemFree(p) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(cuDevicePrimaryCtxRetain(&b, 0) == CUDA_SUCCESS);
    CHECK(b == a);
    REQUIRE(cuCtxGetId(b, &second) == CUDA_SUCCESS);
    CHECK(second != first);
    CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
    CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
    cuCtxSetCurrent(nullptr);
}

TEST_CASE("per-thread default streams: one for each thread, ordered with the legacy stream") {
    Device device;
    const CUdeviceptr p = alloc(1 << 20);
    REQUIRE(launch_sum(CU_STREAM_PER_THREAD, p + 4096, p, 4096, 100 * kMs) == CUDA_SUCCESS);
    SECTION("two threads are not ordered") {
        std::thread([&] {
            cuCtxSetCurrent(device.ctx());
            CHECK(launch_fill(CU_STREAM_PER_THREAD, p, 64, 1, 1000) == CUDA_SUCCESS);
        }).join();
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 1);
    }
    SECTION("a context wait orders them") {
        const CUevent e = event();
        REQUIRE(cuCtxRecordEvent(device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuCtxWaitEvent(device.ctx(), e) == CUDA_SUCCESS);
        std::thread([&] {
            cuCtxSetCurrent(device.ctx());
            CHECK(launch_fill(CU_STREAM_PER_THREAD, p, 64, 1, 1000) == CUDA_SUCCESS);
        }).join();
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 0);
    }
    SECTION("the legacy stream is ordered behind it") {
        REQUIRE(cuMemsetD8(p, 1, 64) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 0);
    }
}

TEST_CASE("two devices") {
    Device first(0);
    const CUdeviceptr p = alloc(4096);
    const CUdeviceptr q = alloc(4096);
    CUcontext second = nullptr;
    REQUIRE(cuDevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent(second) == CUDA_SUCCESS);
    const CUstream s = stream();
    const CUdeviceptr there = alloc(4096);
    int can = 0;
    REQUIRE(cuDeviceCanAccessPeer(&can, 1, 0) == CUDA_SUCCESS);
    CHECK(can == 1);
    SECTION("without peer access a kernel faults") {
        REQUIRE(launch_sum(s, there, p, 64, 1000) == CUDA_SUCCESS);
        CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(control::errors() == 1);
    }
    SECTION("a free does not wait for the other device's reader") {
        REQUIRE(cuCtxEnablePeerAccess(first.ctx(), 0) == CUDA_SUCCESS);
        CHECK(cuCtxEnablePeerAccess(first.ctx(), 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        REQUIRE(launch_sum(s, there, p, 64, 100 * kMs) == CUDA_SUCCESS);
        REQUIRE(cuCtxPushCurrent(first.ctx()) == CUDA_SUCCESS);
        const std::uint64_t before = control::now_ns();
        CHECK(cuMemFree(q) == CUDA_SUCCESS);
        if (control::get("progress") == 0) {
            CHECK(control::now_ns() - before < kMs);
        }
        SECTION("so freeing what it reads is an error") {
            CHECK(cuMemFree(p) == CUDA_SUCCESS);
            CHECK(control::errors() + control::races() == 1);
        }
        SECTION("unordered reuse is a race") {
            REQUIRE(cuMemsetD8(p, 9, 64) == CUDA_SUCCESS);
            REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
            cuCtxSynchronize_v2(second);
            CHECK(control::races() == 1);
        }
        SECTION("a context event of one orders the other") {
            REQUIRE(cuCtxPushCurrent(second) == CUDA_SUCCESS);
            const CUevent e = event();
            REQUIRE(cuCtxPopCurrent(nullptr) == CUDA_SUCCESS);
            REQUIRE(cuCtxRecordEvent(second, e) == CUDA_SUCCESS);
            REQUIRE(cuCtxWaitEvent(first.ctx(), e) == CUDA_SUCCESS);
            REQUIRE(cuMemsetD8(p, 9, 64) == CUDA_SUCCESS);
            REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
            CHECK(control::races() == 0);
        }
        cuCtxPopCurrent(nullptr);
    }
    cuCtxPopCurrent(nullptr);
    control::forget_findings();
    REQUIRE(cuDevicePrimaryCtxRelease(1) == CUDA_SUCCESS);
}

TEST_CASE("context events belong to their context and need a driver that has them") {
    Device device;
    CUcontext other = nullptr;
    REQUIRE(cuCtxCreate(&other, nullptr, 0, 0) == CUDA_SUCCESS);
    const CUevent foreign = event();
    CHECK(cuCtxRecordEvent(device.ctx(), foreign) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(cuCtxDestroy(other) == CUDA_SUCCESS);
    CHECK(cuEventQuery(foreign) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    unsigned long long id = 0;
    CHECK(cuCtxGetId(other, &id) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuCtxDestroy(device.ctx()) == CUDA_ERROR_INVALID_CONTEXT);
    const CUevent e = event();
    CHECK(cuCtxWaitEvent(device.ctx(), e) == CUDA_SUCCESS);
    control::set("driver", 12040);
    CHECK(cuCtxRecordEvent(device.ctx(), e) == CUDA_ERROR_NOT_SUPPORTED);
    control::set("driver", 13000);
    CHECK(cuCtxRecordEvent(device.ctx(), e) == CUDA_SUCCESS);
}

TEST_CASE("a recorded context event delays nothing") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream quick = stream();
    REQUIRE(launch_fill(stream(), p, 64, 1, 200 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuCtxRecordEvent(device.ctx(), event()) == CUDA_SUCCESS);
    const std::uint64_t before = control::now_ns();
    REQUIRE(launch_fill(quick, p + 1024, 64, 1, 1000) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(quick) == CUDA_SUCCESS);
    if (control::get("progress") == 0) {
        CHECK(control::now_ns() - before < kMs);
    }
}

TEST_CASE("events: times, states") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream s = stream();
    const CUevent a = event(CU_EVENT_DEFAULT);
    const CUevent b = event(CU_EVENT_DEFAULT);
    float ms = 0;
    CHECK(cuEventQuery(a) == CUDA_SUCCESS);
    CHECK(cuEventElapsedTime(&ms, a, b) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(cuEventRecord(a, s) == CUDA_SUCCESS);
    REQUIRE(launch_fill(s, p, 64, 1, 20 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(b, s) == CUDA_SUCCESS);
    if (control::get("progress") == 0) {
        CHECK(cuEventQuery(b) == CUDA_ERROR_NOT_READY);
        CHECK(cuEventElapsedTime(&ms, a, b) == CUDA_ERROR_NOT_READY);
        CHECK(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
    }
    REQUIRE(cuEventSynchronize(b) == CUDA_SUCCESS);
    REQUIRE(cuEventElapsedTime(&ms, a, b) == CUDA_SUCCESS);
    if (control::get("progress") == 0) {
        CHECK(ms == Approx(20.0));
    }
    CHECK(cuEventDestroy(a) == CUDA_SUCCESS);
    CHECK(cuEventDestroy(a) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("callbacks run on a thread of the driver and may not call it") {
    Device device;
    struct Seen {
        CUresult alloc = CUDA_SUCCESS;
        CUresult free = CUDA_SUCCESS;
        std::thread::id thread;
    };
    Seen in_function;
    Seen in_callback;
    const auto look = [](void* data) {
        auto* seen = static_cast<Seen*>(data);
        CUdeviceptr p = 0;
        seen->alloc = cuMemAlloc(&p, 512);
        seen->free = cuMemFree(0);
        seen->thread = std::this_thread::get_id();
    };
    static void (*const see)(void*) = look;
    const CUstream s = stream();
    REQUIRE(cuLaunchHostFunc(s, look, &in_function) == CUDA_SUCCESS);
    REQUIRE(cuStreamAddCallback(
                s, [](CUstream, CUresult, void* data) { see(data); }, &in_callback, 0) ==
            CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
    for (const Seen* seen : {&in_function, &in_callback}) {
        CHECK(seen->alloc == CUDA_ERROR_NOT_PERMITTED);
        CHECK(seen->free == CUDA_ERROR_NOT_PERMITTED);
        CHECK(seen->thread != std::this_thread::get_id());
    }
}

TEST_CASE("what a wait-value waits for is ordered before it") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream a = stream();
    const CUstream b = stream();
    const Flag flag;
    REQUIRE(cuStreamWaitValue32(b, flag.at, 7, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
    REQUIRE(launch_fill(b, p, 64, 2, 1000) == CUDA_SUCCESS);
    REQUIRE(launch_fill(a, p, 64, 1, 50 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuStreamWriteValue32(a, flag.at, 7, 0) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(b) == CUDA_SUCCESS);
    unsigned char byte = 0;
    REQUIRE(cuMemcpyDtoH(&byte, p, 1) == CUDA_SUCCESS);
    CHECK(byte == 2);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == 0);
}

TEST_CASE("a host store opens a gate") {
    Device device;
    const CUstream s = stream();
    const Flag flag;
    CUstreamBatchMemOpParams op{};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = flag.at;
    op.waitValue.value = 5;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    REQUIRE(cuStreamBatchMemOp(s, 1, &op, 0) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
    *static_cast<volatile std::uint32_t*>(flag.host) = 5;
    CHECK(cuStreamSynchronize(s) == CUDA_SUCCESS);
}

TEST_CASE("handles of destroyed objects are refused") {
    Device device;
    const CUdeviceptr p = alloc(512);
    const CUstream s = stream();
    REQUIRE(cuStreamDestroy(s) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(s) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuMemsetD8Async(p, 0, 1, s) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuStreamDestroy(s) == CUDA_ERROR_INVALID_HANDLE);
}
