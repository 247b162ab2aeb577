// Stream capture: the measured table, what else is allowed beside one, how captures end.
#include <thread>

#include "fixture.h"

using namespace simtest;

namespace {

// A capture under way on a non-blocking stream.
struct Capturing {
    Device device;
    CUdeviceptr p = alloc(4096);
    CUstream s = stream();
    CUevent idle = event();

    explicit Capturing(CUstreamCaptureMode mode) {
        REQUIRE(cuStreamBeginCapture(s, mode) == CUDA_SUCCESS);
    }
    CUstreamCaptureStatus status() {
        CUstreamCaptureStatus st{};
        REQUIRE(cuStreamIsCapturing(s, &st) == CUDA_SUCCESS);
        return st;
    }
    bool valid() { return status() == CU_STREAM_CAPTURE_STATUS_ACTIVE; }
    ~Capturing() {
        CUgraph g = nullptr;
        cuStreamEndCapture(s, &g);
    }
};

template <class F>
CUresult in_another_thread(CUcontext ctx, F&& call) {
    CUresult r = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
        cuCtxSetCurrent(ctx);
        r = call();
    }).join();
    return r;
}

CUresult try_alloc() {
    CUdeviceptr p = 0;
    return cuMemAlloc(&p, 512);
}

constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr CUstreamCaptureMode kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr CUstreamCaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

} // namespace

TEST_CASE("cuMemAlloc beside a capture") {
    SECTION("global, capturing thread") {
        Capturing c(kGlobal);
        CHECK(try_alloc() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("thread-local, capturing thread") {
        Capturing c(kLocal);
        CHECK(try_alloc() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("relaxed") {
        Capturing c(kRelaxed);
        CHECK(try_alloc() == CUDA_SUCCESS);
        CHECK(c.valid());
    }
    SECTION("global, another thread") {
        Capturing c(kGlobal);
        CHECK(in_another_thread(c.device.ctx(), try_alloc) ==
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("thread-local and relaxed, another thread") {
        for (const auto mode : {kLocal, kRelaxed}) {
            Capturing c(mode);
            CHECK(in_another_thread(c.device.ctx(), try_alloc) == CUDA_SUCCESS);
            CHECK(c.valid());
        }
    }
}

TEST_CASE("cuMemFree beside a capture: the capture check comes before the pointer check") {
    int local = 0;
    const auto foreign = reinterpret_cast<CUdeviceptr>(&local);
    SECTION("global and thread-local, capturing thread") {
        for (const auto mode : {kGlobal, kLocal}) {
            for (int which = 0; which < 4; ++which) {
                Capturing c(mode);
                const CUdeviceptr p[] = {c.p, c.p + 1, foreign, 0};
                CHECK(cuMemFree(p[which]) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                CHECK(!c.valid());
            }
        }
    }
    SECTION("relaxed") {
        Capturing c(kRelaxed);
        CHECK(cuMemFree(c.p + 1) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemFree(foreign) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemFree(0) == CUDA_SUCCESS);
        CHECK(cuMemFree(c.p) == CUDA_SUCCESS);
        CHECK(c.valid());
    }
    SECTION("another thread") {
        for (const auto mode : {kGlobal, kLocal, kRelaxed}) {
            Capturing c(mode);
            const CUdeviceptr p = c.p;
            const CUresult wanted =
                mode == kGlobal ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
            CHECK(in_another_thread(c.device.ctx(), [p] { return cuMemFree(p); }) == wanted);
            CHECK(c.valid() == (mode != kGlobal));
        }
    }
}

TEST_CASE("queries beside a capture") {
    SECTION("capturing thread") {
        Capturing c(kGlobal);
        CHECK(cuEventQuery(c.idle) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("relaxed") {
        Capturing c(kRelaxed);
        CHECK(cuEventQuery(c.idle) == CUDA_SUCCESS);
        CHECK(c.valid());
    }
    SECTION("another thread, global") {
        Capturing c(kGlobal);
        const CUevent e = c.idle;
        CHECK(in_another_thread(c.device.ctx(), [e] { return cuEventQuery(e); }) ==
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("another thread, stream query, global") {
        Capturing c(kGlobal);
        CHECK(in_another_thread(c.device.ctx(), [] { return cuStreamQuery(nullptr); }) ==
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("another thread, global, under the relaxed exchange") {
        Capturing c(kGlobal);
        const CUevent e = c.idle;
        CHECK(in_another_thread(c.device.ctx(), [e] {
                  CUstreamCaptureMode mode = kRelaxed;
                  cuThreadExchangeStreamCaptureMode(&mode);
                  return cuEventQuery(e);
              }) == CUDA_SUCCESS);
        CHECK(c.valid());
    }
    SECTION("another thread, thread-local and relaxed") {
        for (const auto mode : {kLocal, kRelaxed}) {
            Capturing c(mode);
            const CUevent e = c.idle;
            CHECK(in_another_thread(c.device.ctx(), [e] { return cuEventQuery(e); }) ==
                  CUDA_SUCCESS);
            CHECK(c.valid());
        }
    }
}

TEST_CASE("under the relaxed exchange a global capture is left alone") {
    Capturing c(kGlobal);
    const CUstream other = stream();
    CUstreamCaptureMode mode = kRelaxed;
    REQUIRE(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == kGlobal);
    CHECK(try_alloc() == CUDA_SUCCESS);
    CHECK(cuMemFree(c.p) == CUDA_SUCCESS);
    const CUevent e = event();
    CHECK(cuEventRecord(e, other) == CUDA_SUCCESS);
    CHECK(cuEventQuery(e) != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REQUIRE(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == kRelaxed);
    CHECK(c.valid());
}

TEST_CASE("context events fail beside a capture in any mode and invalidate it") {
    for (const auto mode : {kGlobal, kLocal, kRelaxed}) {
        {
            Capturing c(mode);
            CHECK(cuCtxRecordEvent(c.device.ctx(), c.idle) ==
                  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            CHECK(!c.valid());
        }
        {
            Capturing c(mode);
            CUstreamCaptureMode relaxed = kRelaxed;
            cuThreadExchangeStreamCaptureMode(&relaxed);
            CHECK(cuCtxWaitEvent(c.device.ctx(), c.idle) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            cuThreadExchangeStreamCaptureMode(&relaxed);
            CHECK(!c.valid());
        }
    }
}

TEST_CASE("stream-ordered calls on another stream beside a global capture") {
    Device device;
    CUdeviceptr a = 0;
    const CUstream other = stream();
    REQUIRE(cuMemAllocAsync(&a, 512, other) == CUDA_SUCCESS);
    SECTION("alloc") {
        Capturing c(kGlobal);
        CUdeviceptr q = 0;
        CHECK(cuMemAllocAsync(&q, 512, other) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("free") {
        Capturing c(kGlobal);
        CHECK(cuMemFreeAsync(a, other) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(!c.valid());
    }
    SECTION("cuMemAlloc's memory on the capturing stream") {
        Capturing c(kRelaxed);
        CHECK(cuMemFreeAsync(c.p, c.s) == CUDA_ERROR_INVALID_VALUE);
        CHECK(c.valid());
    }
    CHECK(cuMemFree(a) == CUDA_SUCCESS);
}

TEST_CASE("what a global capture allows and forbids besides") {
    const auto after = [](auto call) {
        Capturing c(kGlobal);
        const CUresult r = call(c);
        CHECK(c.valid() == (r == CUDA_SUCCESS));
        return r;
    };
    CHECK(after([](Capturing&) { return cuMemFreeHost(nullptr); }) ==
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(after([](Capturing&) {
              void* p = nullptr;
              return cuMemHostAlloc(&p, 64, 0);
          }) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(after([](Capturing&) { return cuCtxSynchronize(); }) ==
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(after([](Capturing&) { return cuStreamSynchronize(stream()); }) ==
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(after([](Capturing&) { return cuMemGetInfo(nullptr, nullptr); }) == CUDA_SUCCESS);
    CHECK(after([](Capturing& c) { return cuMemGetAddressRange(nullptr, nullptr, c.p); }) ==
          CUDA_SUCCESS);
    CHECK(after([](Capturing&) { return cuEventDestroy(event()); }) == CUDA_SUCCESS);
    CHECK(after([](Capturing&) { return cuStreamDestroy(stream()); }) == CUDA_SUCCESS);
    CHECK(after([](Capturing& c) { return cuStreamWriteValue32(stream(), c.p, 1, 0); }) ==
          CUDA_SUCCESS);
}

TEST_CASE("an invalidated capture stays open until its end, which fails") {
    Capturing c(kGlobal);
    try_alloc();
    CHECK(launch_fill(c.s, c.p, 64, 1, 1000) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUgraph g = nullptr;
    CHECK(cuStreamEndCapture(c.s, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(g == nullptr);
    CHECK(try_alloc() == CUDA_SUCCESS);
    CHECK(launch_fill(c.s, c.p, 64, 1, 1000) == CUDA_SUCCESS);
}

TEST_CASE("the legacy stream beside a capture") {
    Capturing c(kRelaxed);
    SECTION("a record succeeds") {
        CHECK(cuEventRecord(c.idle, nullptr) == CUDA_SUCCESS);
        CHECK(c.valid());
    }
    SECTION("work beside a non-blocking stream's capture succeeds") {
        CHECK(cuMemsetD8(c.p, 0, 64) == CUDA_SUCCESS);
        CHECK(c.valid());
    }
    SECTION("synchronous copies and fills too, in a global capture as well") {
        Capturing global(kGlobal);
        char byte = 0;
        CHECK(cuMemsetD8(global.p, 0, 64) == CUDA_SUCCESS);
        CHECK(cuMemcpyHtoD(global.p, &byte, 1) == CUDA_SUCCESS);
        CHECK(cuMemcpyDtoH(&byte, global.p, 1) == CUDA_SUCCESS);
        CHECK(cuMemcpyDtoD(global.p, global.p + 64, 1) == CUDA_SUCCESS);
        CHECK(global.valid());
    }
    SECTION("a query or a record beside a blocking stream's capture") {
        for (int which = 0; which < 3; ++which) {
            const CUstream blocking = stream(CU_STREAM_DEFAULT);
            REQUIRE(cuStreamBeginCapture(blocking, kRelaxed) == CUDA_SUCCESS);
            const CUresult r = which == 0   ? cuEventRecord(c.idle, nullptr)
                               : which == 1 ? cuStreamQuery(nullptr)
                                            : cuStreamSynchronize(nullptr);
            CHECK(r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            CUgraph g = nullptr;
            CHECK(cuStreamEndCapture(blocking, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
    }
    SECTION("work beside a blocking stream's capture does not") {
        const CUstream blocking = stream(CU_STREAM_DEFAULT);
        REQUIRE(cuStreamBeginCapture(blocking, kRelaxed) == CUDA_SUCCESS);
        CHECK(cuMemsetD8(c.p, 0, 64) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        CUgraph g = nullptr;
        CHECK(cuStreamEndCapture(blocking, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    CHECK(cuStreamBeginCapture(nullptr, kRelaxed) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_CASE("ends of captures in the wrong place") {
    Capturing c(kGlobal);
    const CUstream other = stream();
    CUgraph g = nullptr;
    CHECK(cuStreamEndCapture(other, &g) == CUDA_ERROR_ILLEGAL_STATE);
    const CUstream s = c.s;
    CHECK(in_another_thread(c.device.ctx(), [s] {
              CUgraph graph = nullptr;
              return cuStreamEndCapture(s, &graph);
          }) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CHECK(c.status() == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("waiting for uncaptured work inside a capture breaks its isolation") {
    Device device;
    const CUstream outside = stream();
    const CUstream s = stream();
    const CUevent e = event();
    REQUIRE(cuEventRecord(e, outside) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    CHECK(cuStreamWaitEvent(s, e, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CUgraph g = nullptr;
    CHECK(cuStreamEndCapture(s, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("an event of a capture cannot be queried") {
    Capturing c(kRelaxed);
    REQUIRE(cuEventRecord(c.idle, c.s) == CUDA_SUCCESS);
    SECTION("query") {
        CHECK(cuEventQuery(c.idle) == CUDA_ERROR_CAPTURED_EVENT);
    }
    SECTION("wait") {
        CHECK(cuEventSynchronize(c.idle) == CUDA_ERROR_CAPTURED_EVENT);
    }
    CHECK(!c.valid());
    CUgraph g = nullptr;
    REQUIRE(cuStreamEndCapture(c.s, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuEventQuery(c.idle) == CUDA_ERROR_INVALID_VALUE);
}
