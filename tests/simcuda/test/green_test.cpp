// Green contexts: streams of their own, memory and frees of the primary.
#include "fixture.h"

using namespace simtest;

namespace {

constexpr unsigned kBytes = 4096;

CUdevResourceDesc share(CUdevice dev = 0) {
    CUdevResource all{};
    REQUIRE(cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS);
    CUdevResource half{};
    unsigned groups = 1;
    REQUIRE(cuDevSmResourceSplitByCount(&half, &groups, &all, nullptr, 0, all.sm.smCount / 2) ==
            CUDA_SUCCESS);
    REQUIRE(groups == 1);
    CUdevResourceDesc desc = nullptr;
    REQUIRE(cuDevResourceGenerateDesc(&desc, &half, 1) == CUDA_SUCCESS);
    return desc;
}

struct Green {
    Device device;
    CUgreenCtx green = nullptr;
    CUcontext ctx = nullptr;
    CUstream s = nullptr;
    CUdeviceptr buffer = alloc(1 << 20);
    CUdeviceptr out = buffer + (1 << 19);

    Green() {
        REQUIRE(cuGreenCtxCreate(&green, share(), 0, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
        REQUIRE(cuCtxFromGreenCtx(&ctx, green) == CUDA_SUCCESS);
        REQUIRE(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    }
    ~Green() { cuGreenCtxDestroy(green); }
    void late_read(CUstream stream) const {
        REQUIRE(launch_sum(stream, out, buffer, kBytes, 200 * kMs) == CUDA_SUCCESS);
    }
    static std::uint64_t races() {
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        return control::races();
    }
};

} // namespace

TEST_CASE("an event of a converted green context covers its own streams alone") {
    Green g;
    const CUevent e = event();
    const CUstream primary = stream();
    const bool on_green = GENERATE(true, false);
    const bool through_handle = GENERATE(true, false);
    CAPTURE(on_green, through_handle);
    g.late_read(on_green ? g.s : primary);
    REQUIRE((through_handle ? cuGreenCtxRecordEvent(g.green, e) : cuCtxRecordEvent(g.ctx, e)) ==
            CUDA_SUCCESS);
    REQUIRE(cuCtxWaitEvent(g.device.ctx(), e) == CUDA_SUCCESS);
    REQUIRE(launch_fill(stream(), g.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    CHECK(Green::races() == (on_green ? 0 : 1));
}

TEST_CASE("an event of the primary covers its green contexts, and its waits hold them up") {
    Green g;
    const CUevent e = event();
    const CUstream primary = stream();
    SECTION("green work is covered") {
        g.late_read(g.s);
        REQUIRE(cuCtxRecordEvent(g.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(primary, e, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(primary, g.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    SECTION("green work waits") {
        g.late_read(primary);
        REQUIRE(cuCtxRecordEvent(g.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuCtxWaitEvent(g.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(launch_fill(g.s, g.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    SECTION("a synchronisation of the primary waits for green work") {
        g.late_read(g.s);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        REQUIRE(cuStreamQuery(g.s) == CUDA_SUCCESS);
        REQUIRE(launch_fill(primary, g.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    CHECK(Green::races() == 0);
}

TEST_CASE("a wait of a green context holds up its own streams alone") {
    Green g;
    const CUevent e = event();
    const bool on_green = GENERATE(true, false);
    const bool through_handle = GENERATE(true, false);
    CAPTURE(on_green, through_handle);
    g.late_read(stream());
    REQUIRE(cuCtxRecordEvent(g.device.ctx(), e) == CUDA_SUCCESS);
    REQUIRE((through_handle ? cuGreenCtxWaitEvent(g.green, e) : cuCtxWaitEvent(g.ctx, e)) ==
            CUDA_SUCCESS);
    REQUIRE(launch_fill(on_green ? g.s : stream(), g.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    CHECK(Green::races() == (on_green ? 0 : 1));
}

TEST_CASE("the default stream of a green context is its own") {
    Green g;
    g.late_read(nullptr);
    REQUIRE(cuCtxPushCurrent(g.ctx) == CUDA_SUCCESS);
    REQUIRE(launch_fill(nullptr, g.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    REQUIRE(cuCtxPopCurrent(nullptr) == CUDA_SUCCESS);
    CHECK(Green::races() == 1);
}

TEST_CASE("memory allocated with a green context current is the primary's") {
    Green g;
    REQUIRE(cuCtxPushCurrent(g.ctx) == CUDA_SUCCESS);
    CUcontext current = nullptr;
    REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == g.ctx);
    const CUdeviceptr p = alloc(kBytes);
    REQUIRE(cuCtxPopCurrent(nullptr) == CUDA_SUCCESS);
    CUcontext owner = nullptr;
    REQUIRE(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p) == CUDA_SUCCESS);
    CHECK(owner == g.device.ctx());
    // Its free waits for everything of the primary, green work included, and needs neither current.
    g.late_read(g.s);
    REQUIRE(cuMemFree(p) == CUDA_SUCCESS);
    CHECK(cuStreamQuery(g.s) == CUDA_SUCCESS);
    CHECK(Green::races() == 0);
}

TEST_CASE("a stream tells its green context") {
    Green g;
    CUgreenCtx green = nullptr;
    CUcontext ctx = nullptr;
    REQUIRE(cuStreamGetGreenCtx(g.s, &green) == CUDA_SUCCESS);
    CHECK(green == g.green);
    REQUIRE(cuStreamGetCtx(g.s, &ctx) == CUDA_SUCCESS);
    CHECK((ctx == g.ctx || ctx == g.device.ctx())); // the newer shape gives the primary
    green = g.green;
    REQUIRE(cuStreamGetGreenCtx(stream(), &green) == CUDA_SUCCESS);
    CHECK(green == nullptr);
}

TEST_CASE("a capture in a green context is in the way of its primary's events") {
    Green g;
    const CUevent e = event();
    REQUIRE(cuStreamBeginCapture(g.s, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK(cuCtxRecordEvent(g.device.ctx(), e) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(g.s, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("a fault is the primary's as well") {
    Green g;
    REQUIRE(launch_sum(g.s, g.out, 64, kBytes, 1000) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuStreamQuery(g.s) == CUDA_ERROR_ILLEGAL_ADDRESS);
    control::forget_findings();
}

TEST_CASE("a green context keeps its primary alive, and ends with its handle dead") {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    unsigned flags = 0;
    int active = 1;
    REQUIRE(cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS);
    REQUIRE(active == 0);
    CUgreenCtx green = nullptr;
    REQUIRE(cuGreenCtxCreate(&green, share(1), 1, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 1);
    CUstream s = nullptr;
    REQUIRE(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    CUcontext ctx = nullptr;
    REQUIRE(cuCtxFromGreenCtx(&ctx, green) == CUDA_SUCCESS);
    CHECK(cuCtxDestroy(ctx) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cuGreenCtxDestroy(green) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
    CHECK(cuStreamQuery(s) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuStreamDestroy(s) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(cuGreenCtxDestroy(green) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_CASE("wrong arguments of green contexts") {
    Green g;
    CUgreenCtx other = nullptr;
    CUstream s = nullptr;
    CUdevResource r{};
    CHECK(cuGreenCtxCreate(&other, share(), 0, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGreenCtxCreate(&other, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGreenCtxCreate(&other, share(), 1, CU_GREEN_CTX_DEFAULT_STREAM) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGreenCtxStreamCreate(&s, g.green, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuGreenCtxStreamCreate(&s, nullptr, CU_STREAM_NON_BLOCKING, 0) ==
          CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuDeviceGetDevResource(0, &r, CU_DEV_RESOURCE_TYPE_INVALID) ==
          CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CHECK(cuDeviceGetDevResource(9, &r, CU_DEV_RESOURCE_TYPE_SM) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("a context that ends takes the captures begun in it along") {
    Device device;
    CUcontext ctx = nullptr;
    REQUIRE(cuCtxCreate(&ctx, nullptr, 0, 0) == CUDA_SUCCESS);
    const CUstream s = stream();
    REQUIRE(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CUdeviceptr p = 0;
    REQUIRE(cuCtxDestroy(ctx) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(device.ctx()) == CUDA_SUCCESS);
    REQUIRE(cuMemAlloc(&p, kBytes) == CUDA_SUCCESS);
    CHECK(cuMemFree(p) == CUDA_SUCCESS);
}
