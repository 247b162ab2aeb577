// The race oracle: reuse without an order is reported on that very run, whatever the timing; with
// any of CUDA's orders nothing is.
#include <cstring>

#include "fixture.h"

using namespace simtest;

namespace {

constexpr unsigned kBytes = 4096;

// A kernel on a non-blocking stream that reads a buffer late.
struct LateReader {
    Device device;
    CUdeviceptr buffer = alloc(1 << 20);
    CUdeviceptr out = buffer + (1 << 19);
    CUstream reader = stream();
    CUstream other = stream();

    LateReader() {
        REQUIRE(cuMemsetD8(buffer, 1, kBytes) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        REQUIRE(launch_sum(reader, out, buffer, kBytes, 200 * kMs) == CUDA_SUCCESS);
    }
    // Everything ends; how many races were found on the way.
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

TEST_CASE("reuse on another stream without an order is a race") {
    LateReader t;
    REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    CHECK(t.races() == 1);
    CHECK(control::errors() == 0);
}

TEST_CASE("the race is found however quick the reader was") {
    Device device;
    const CUdeviceptr buffer = alloc(1 << 20);
    REQUIRE(launch_sum(stream(), buffer + kBytes, buffer, kBytes, 1) == CUDA_SUCCESS);
    control::advance_ns(1000 * kMs);
    REQUIRE(launch_fill(stream(), buffer, kBytes, 9, 1) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == 1);
}

TEST_CASE("a legacy memset beside a non-blocking stream is a race, and the bytes are wrong") {
    LateReader t;
    REQUIRE(cuMemsetD8(t.buffer, 9, kBytes) == CUDA_SUCCESS);
    CHECK(t.races() == 1);
    if (control::get("progress") == 0) {
        CHECK(t.sum() == 9 * kBytes);
    }
}

TEST_CASE("every kind of copy into a buffer that is still read is a race") {
    LateReader t;
    std::vector<char> host(kBytes);
    SECTION("HtoD") {
        REQUIRE(cuMemcpyHtoD(t.buffer, host.data(), kBytes) == CUDA_SUCCESS);
    }
    SECTION("HtoD async") {
        REQUIRE(cuMemcpyHtoDAsync(t.buffer, host.data(), kBytes, t.other) == CUDA_SUCCESS);
    }
    SECTION("DtoD") {
        REQUIRE(cuMemcpyDtoD(t.buffer, t.buffer + kBytes, kBytes) == CUDA_SUCCESS);
    }
    SECTION("one byte at the end") {
        REQUIRE(cuMemsetD8Async(t.buffer + kBytes - 1, 1, 1, t.other) == CUDA_SUCCESS);
    }
    SECTION("memset of a blocking stream") {
        REQUIRE(cuMemsetD32Async(t.buffer, 1, kBytes / 4, stream(CU_STREAM_DEFAULT)) ==
                CUDA_SUCCESS);
    }
    CHECK(t.races() == 1);
}

TEST_CASE("neighbouring bytes do not race") {
    LateReader t;
    REQUIRE(cuMemsetD8(t.buffer + kBytes, 9, kBytes) == CUDA_SUCCESS);
    CHECK(t.races() == 0);
    CHECK(t.sum() == kBytes);
}

TEST_CASE("two readers do not race") {
    LateReader t;
    REQUIRE(launch_sum(t.other, t.out + 64, t.buffer, kBytes, 1000) == CUDA_SUCCESS);
    CHECK(t.races() == 0);
}

TEST_CASE("an order by CUDA is no race, and the bytes are right") {
    LateReader t;
    const CUevent e = event();
    SECTION("an event and a wait on the writing stream") {
        REQUIRE(cuEventRecord(e, t.reader) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(t.other, e, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    SECTION("a context event and a context wait") {
        REQUIRE(cuCtxRecordEvent(t.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuCtxWaitEvent(t.device.ctx(), e) == CUDA_SUCCESS);
        SECTION("existing stream") {
            REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
        }
        SECTION("stream created later") {
            REQUIRE(launch_fill(stream(), t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
        }
        SECTION("legacy memset") {
            REQUIRE(cuMemsetD8(t.buffer, 9, kBytes) == CUDA_SUCCESS);
        }
        SECTION("per-thread stream") {
            REQUIRE(launch_fill(CU_STREAM_PER_THREAD, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
        }
    }
    SECTION("a context event and a wait on the writing stream") {
        REQUIRE(cuCtxRecordEvent(t.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(t.other, e, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    SECTION("the host waited for the stream") {
        REQUIRE(cuStreamSynchronize(t.reader) == CUDA_SUCCESS);
        REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    SECTION("the host polled an event") {
        REQUIRE(cuEventRecord(e, t.reader) == CUDA_SUCCESS);
        while (cuEventQuery(e) == CUDA_ERROR_NOT_READY) {
            control::advance_ns(kMs);
        }
        REQUIRE(cuMemsetD8(t.buffer, 9, kBytes) == CUDA_SUCCESS);
    }
    SECTION("the host waited in cuMemFree of something else") {
        REQUIRE(cuMemFree(alloc(512)) == CUDA_SUCCESS);
        REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    SECTION("the same stream") {
        REQUIRE(launch_fill(t.reader, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    }
    CHECK(t.races() == 0);
    CHECK(t.sum() == kBytes);
}

TEST_CASE("a recorded event alone orders nothing") {
    LateReader t;
    const CUevent e = event();
    REQUIRE(cuCtxRecordEvent(t.device.ctx(), e) == CUDA_SUCCESS);
    REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    CHECK(t.races() == 1);
}

TEST_CASE("an event recorded before the reader orders nothing") {
    Device device;
    const CUdeviceptr buffer = alloc(1 << 20);
    const CUstream reader = stream();
    const CUstream other = stream();
    const CUevent e = event();
    REQUIRE(cuEventRecord(e, reader) == CUDA_SUCCESS);
    REQUIRE(launch_sum(reader, buffer + kBytes, buffer, kBytes, 1000) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(other, e, 0) == CUDA_SUCCESS);
    REQUIRE(launch_fill(other, buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == 1);
}

TEST_CASE("the legacy stream and a blocking stream order one another") {
    Device device;
    const CUdeviceptr buffer = alloc(1 << 20);
    const CUstream blocking = stream(CU_STREAM_DEFAULT);
    REQUIRE(cuMemsetD8(buffer, 1, kBytes) == CUDA_SUCCESS);
    REQUIRE(launch_sum(blocking, buffer + kBytes, buffer, kBytes, 200 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8(buffer, 9, kBytes) == CUDA_SUCCESS);
    REQUIRE(launch_fill(stream(CU_STREAM_DEFAULT), buffer, kBytes, 3, 1000) == CUDA_SUCCESS);
    unsigned value = 0;
    REQUIRE(cuMemcpyDtoH(&value, buffer + kBytes, sizeof value) == CUDA_SUCCESS);
    CHECK(value == kBytes);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == 0);
}

TEST_CASE("history outlives a sub-allocator's frees and ends with the driver's") {
    Device device;
    const CUdeviceptr buffer = alloc(4 << 20);
    REQUIRE(launch_fill(stream(), buffer, kBytes, 1, 1000) == CUDA_SUCCESS);
    SECTION("memory handed on inside one allocation") {
        REQUIRE(launch_fill(stream(), buffer, kBytes, 2, 1000) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 1);
    }
    SECTION("freed by the driver, which waits, and allocated again") {
        REQUIRE(cuMemFree(buffer) == CUDA_SUCCESS);
        const CUdeviceptr again = alloc(4 << 20);
        CHECK(again == buffer);
        REQUIRE(launch_fill(stream(), again, kBytes, 2, 1000) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CHECK(control::races() == 0);
    }
}

TEST_CASE("a stream's successor under the same handle does not inherit its order") {
    Device device;
    const CUdeviceptr buffer = alloc(1 << 20);
    const CUstream first = stream();
    REQUIRE(launch_sum(first, buffer + kBytes, buffer, kBytes, 200 * kMs) == CUDA_SUCCESS);
    REQUIRE(cuStreamDestroy(first) == CUDA_SUCCESS);
    const CUstream second = stream();
    CHECK(second == first);
    REQUIRE(launch_fill(second, buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == 1);
}

TEST_CASE("a context wait covers a destroyed stream's work") {
    LateReader t;
    REQUIRE(cuStreamDestroy(t.reader) == CUDA_SUCCESS);
    const CUevent e = event();
    REQUIRE(cuCtxRecordEvent(t.device.ctx(), e) == CUDA_SUCCESS);
    REQUIRE(cuCtxWaitEvent(t.device.ctx(), e) == CUDA_SUCCESS);
    REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    CHECK(t.races() == 0);
    CHECK(t.sum() == kBytes);
}

TEST_CASE("order and its absence are the same after the reader has ended unseen") {
    LateReader t;
    const CUevent e = event();
    control::advance_ns(10'000 * kMs);
    SECTION("an event still orders") {
        REQUIRE(cuEventRecord(e, t.reader) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(t.other, e, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 0);
    }
    SECTION("a context event covers a stream that is gone") {
        REQUIRE(cuStreamDestroy(t.reader) == CUDA_SUCCESS);
        REQUIRE(cuCtxRecordEvent(t.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(cuCtxWaitEvent(t.device.ctx(), e) == CUDA_SUCCESS);
        REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 0);
    }
    SECTION("a new stream under the old handle is not ordered") {
        REQUIRE(cuStreamDestroy(t.reader) == CUDA_SUCCESS);
        REQUIRE(launch_fill(stream(), t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
        CHECK(t.races() == 1);
    }
}

TEST_CASE("an order travels over a third stream whose part has ended") {
    LateReader t;
    const CUstream between = stream();
    const CUevent first = event();
    const CUevent second = event();
    REQUIRE(cuEventRecord(first, t.reader) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(between, first, 0) == CUDA_SUCCESS);
    control::advance_ns(10'000 * kMs);
    REQUIRE(cuEventRecord(second, between) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(t.other, second, 0) == CUDA_SUCCESS);
    REQUIRE(launch_fill(t.other, t.buffer, kBytes, 9, 1000) == CUDA_SUCCESS);
    CHECK(t.races() == 0);
}

TEST_CASE("an ordered write of one half leaves the other half's history alone") {
    LateReader t;
    REQUIRE(launch_fill(t.reader, t.buffer, kBytes / 2, 9, 1000) == CUDA_SUCCESS);
    control::advance_ns(10'000 * kMs);
    REQUIRE(launch_fill(t.other, t.buffer + kBytes / 2, 16, 9, 1000) == CUDA_SUCCESS);
    CHECK(t.races() == 1);
}

TEST_CASE("a write in the middle leaves both sides' history alone") {
    LateReader t;
    REQUIRE(launch_fill(t.reader, t.buffer + 1024, 1024, 9, 1000) == CUDA_SUCCESS);
    control::advance_ns(10'000 * kMs);
    REQUIRE(launch_fill(t.other, t.buffer + 512, 16, 9, 1000) == CUDA_SUCCESS);
    REQUIRE(launch_fill(t.other, t.buffer + 3072, 16, 9, 1000) == CUDA_SUCCESS);
    CHECK(t.races() == 2);
}

TEST_CASE("the host's own accesses are checked when it tells of them") {
    Device device;
    void* host = nullptr;
    REQUIRE(cuMemAllocHost(&host, kBytes) == CUDA_SUCCESS);
    const CUdeviceptr buffer = alloc(kBytes);
    const CUstream s = stream();
    REQUIRE(cuMemcpyDtoHAsync(host, buffer, kBytes, s) == CUDA_SUCCESS);
    SECTION("too early") {
        control::advance_ns(100 * kMs);
        control::host_access(host, kBytes, false);
        CHECK(control::races() == 1);
    }
    SECTION("after a synchronisation") {
        REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
        control::host_access(host, kBytes, false);
        CHECK(control::races() == 0);
    }
}
