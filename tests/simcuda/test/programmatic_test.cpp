// Programmatic dependent launch: the kernel may start before the one in front of it has ended, so
// nothing but a wait of its own, or an operation between the two, orders them.
#include "fixture.h"

using namespace simtest;

namespace {

constexpr unsigned kBytes = 4096;

CUlaunchAttribute may_start_early() {
    CUlaunchAttribute a{};
    a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    a.value.programmaticStreamSerializationAllowed = 1;
    return a;
}

CUlaunchAttribute fires(CUevent e) {
    CUlaunchAttribute a{};
    a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    a.value.programmaticEvent.event = e;
    return a;
}

CUresult launch(const char* name, CUstream s, void** args,
                std::vector<CUlaunchAttribute> attributes) {
    CUlaunchConfig c{};
    c.gridDimX = c.gridDimY = c.gridDimZ = 1;
    c.blockDimX = c.blockDimY = c.blockDimZ = 1;
    c.hStream = s;
    c.attrs = attributes.data();
    c.numAttrs = static_cast<unsigned>(attributes.size());
    return cuLaunchKernelEx(&c, kernel(name), args, nullptr);
}

// A first kernel that reads a buffer for long, and what comes behind it on its stream.
struct Two {
    Device device;
    CUdeviceptr buffer = alloc(1 << 20);
    CUdeviceptr elsewhere = buffer + (1 << 18);
    CUdeviceptr out = buffer + (1 << 19);
    CUstream s = stream();

    Two() {
        REQUIRE(cuMemsetD8(buffer, 1, 1 << 19) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        REQUIRE(launch_sum(s, out, buffer, kBytes, 200 * kMs) == CUDA_SUCCESS);
    }
    CUresult early_fill(CUdeviceptr to, std::vector<CUlaunchAttribute> attributes) {
        unsigned bytes = kBytes;
        unsigned char value = 9;
        std::uint64_t ns = 1000;
        void* args[] = {&to, &bytes, &value, &ns};
        return launch("fill", s, args, std::move(attributes));
    }
    CUresult fill_then_read(CUdeviceptr to, CUdeviceptr from) {
        unsigned bytes = kBytes;
        void* args[] = {&to, &from, &bytes};
        return launch("fill_then_read", s, args, {may_start_early()});
    }
    std::uint64_t races() {
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        return control::races();
    }
    unsigned sum() {
        unsigned value = 0;
        REQUIRE(cuMemcpyDtoH(&value, out, sizeof value) == CUDA_SUCCESS);
        return value;
    }
};

} // namespace

TEST_CASE("a kernel with the attribute is not ordered behind the one in front of it") {
    Two t;
    REQUIRE(t.early_fill(t.buffer, {may_start_early()}) == CUDA_SUCCESS);
    CHECK(t.races() == 1);
    if (control::get("progress") == 0) {
        CHECK(t.sum() == 9 * kBytes);
    }
}

TEST_CASE("without the attribute, or with a zero in it, it is") {
    Two t;
    CUlaunchAttribute off = may_start_early();
    off.value.programmaticStreamSerializationAllowed = 0;
    REQUIRE(t.early_fill(t.buffer, {off}) == CUDA_SUCCESS);
    CHECK(t.races() == 0);
    CHECK(t.sum() == kBytes);
}

TEST_CASE("an early kernel stays behind what the one in front of it came behind") {
    Two t;
    const CUstream other = stream();
    const CUevent e = event();
    REQUIRE(launch_sum(other, t.out + 64, t.elsewhere, kBytes, 300 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(e, other) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(t.s, e, 0) == CUDA_SUCCESS);
    REQUIRE(launch_sum(t.s, t.out + 128, t.buffer, kBytes, 1000) == CUDA_SUCCESS);
    REQUIRE(t.early_fill(t.elsewhere, {may_start_early()}) == CUDA_SUCCESS);
    CHECK(t.races() == 0);
}

TEST_CASE("an operation between the two kernels orders them") {
    Two t;
    const CUevent e = event();
    SECTION("a wait for an event") {
        REQUIRE(cuEventRecord(e, t.s) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(t.s, e, 0) == CUDA_SUCCESS);
    }
    SECTION("a memset of something else") {
        REQUIRE(cuMemsetD8Async(t.elsewhere, 0, 16, t.s) == CUDA_SUCCESS);
    }
    SECTION("a wait of the context") {
        REQUIRE(cuCtxRecordEvent(t.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuCtxWaitEvent(t.device.ctx(), e) == CUDA_SUCCESS);
    }
    SECTION("a wait of the host") {
        REQUIRE(cuStreamSynchronize(t.s) == CUDA_SUCCESS);
    }
    REQUIRE(t.early_fill(t.buffer, {may_start_early()}) == CUDA_SUCCESS);
    CHECK(t.races() == 0);
    CHECK(t.sum() == kBytes);
}

TEST_CASE("a record of a context event alone does not") {
    Two t;
    REQUIRE(cuCtxRecordEvent(t.device.ctx(), event()) == CUDA_SUCCESS);
    REQUIRE(t.early_fill(t.buffer, {may_start_early()}) == CUDA_SUCCESS);
    CHECK(t.races() == 1);
}

TEST_CASE("the kernel's own wait orders what it does behind it, and nothing before") {
    Two t;
    SECTION("reads behind the wait") {
        REQUIRE(t.fill_then_read(t.elsewhere, t.out) == CUDA_SUCCESS);
        CHECK(t.races() == 0);
    }
    SECTION("writes before the wait") {
        REQUIRE(t.fill_then_read(t.buffer, t.out) == CUDA_SUCCESS);
        CHECK(t.races() == 1);
    }
}

TEST_CASE("a chain of early kernels") {
    Two t;
    REQUIRE(t.early_fill(t.elsewhere, {may_start_early()}) == CUDA_SUCCESS);
    SECTION("the third is not ordered with the first") {
        REQUIRE(t.early_fill(t.buffer, {may_start_early()}) == CUDA_SUCCESS);
        CHECK(t.races() == 1);
    }
    SECTION("nor with the second") {
        REQUIRE(t.early_fill(t.elsewhere, {may_start_early()}) == CUDA_SUCCESS);
        CHECK(t.races() == 1);
    }
    SECTION("a plain kernel comes behind both") {
        REQUIRE(launch_fill(t.s, t.buffer, kBytes, 2, 1000) == CUDA_SUCCESS);
        REQUIRE(launch_fill(t.s, t.elsewhere, kBytes, 2, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 0);
    }
    SECTION("so does whoever waits for an event behind them") {
        const CUevent e = event();
        const CUstream other = stream();
        REQUIRE(cuEventRecord(e, t.s) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(other, e, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(other, t.buffer, kBytes, 2, 1000) == CUDA_SUCCESS);
        REQUIRE(launch_fill(other, t.elsewhere, kBytes, 2, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 0);
    }
    SECTION("and a context event") {
        const CUevent e = event();
        REQUIRE(cuCtxRecordEvent(t.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuEventSynchronize(e) == CUDA_SUCCESS);
        REQUIRE(launch_fill(stream(), t.elsewhere, kBytes, 2, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 0);
    }
}

TEST_CASE("an event of a launch does not wait for the kernel") {
    Two t;
    const CUevent e = event();
    const CUstream other = stream();
    REQUIRE(t.early_fill(t.elsewhere, {fires(e)}) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(other, e, 0) == CUDA_SUCCESS);
    SECTION("the kernel itself races") {
        REQUIRE(launch_sum(other, t.out + 64, t.elsewhere, kBytes, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 1);
    }
    SECTION("what the kernel came behind does not") {
        REQUIRE(launch_fill(other, t.buffer, kBytes, 2, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 0);
    }
}

TEST_CASE("an event of a launch must not take the time") {
    Two t;
    CHECK(t.early_fill(t.elsewhere, {fires(event(CU_EVENT_DEFAULT))}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(t.early_fill(t.elsewhere, {fires(nullptr)}) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("many early kernels in a row") {
    Two t;
    for (unsigned i = 0; i < 500; ++i) {
        REQUIRE(t.fill_then_read(t.elsewhere + i * 16, t.out) == CUDA_SUCCESS);
        if (i % 100 == 99) {
            REQUIRE(cuStreamSynchronize(t.s) == CUDA_SUCCESS);
        }
    }
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::errors() == 0);
}
