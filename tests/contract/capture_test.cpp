// What may be called beside a stream capture: what fails natively fails the same way, and no
// capture is invalidated by the allocator.
#include "tests/contract/capture.h"

#include <thread>

using namespace contract;

namespace {

struct Column {
    CUstreamCaptureMode mode;
    Who who;
};
constexpr Column kColumns[] = {
    {kGlobal, Who::capturing_thread},  {kLocal, Who::capturing_thread},
    {kRelaxed, Who::capturing_thread}, {kGlobal, Who::another_thread},
    {kLocal, Who::another_thread},     {kRelaxed, Who::another_thread},
};

// Where allocating, freeing and querying are refused: in the capturing thread unless the mode is
// relaxed, and beside a global capture in every thread.
bool refused_in(const Column& column) {
    return column.mode == kGlobal || (column.mode == kLocal && column.who == Who::capturing_thread);
}

} // namespace

TEST_CASE("allocating beside a capture", "[capture]") {
    Device device;
    for (const Column& column : kColumns) {
        const bool refused = refused_in(column);
        INFO(name_of(column.mode, column.who));
        CUdeviceptr memory = 0;
        Outcome outcome = beside_capture(device, column.mode, column.who,
                                         [&] { return cuMemAlloc(&memory, 5000); });
        CHECK(outcome.result == (refused ? kRefused : CUDA_SUCCESS));
        CHECK(outcome.valid == !refused);
        if (outcome.result == CUDA_SUCCESS) {
            fill(pointer(memory), 5000, 1);
            CHECK(holds(pointer(memory), 5000, 1));
            CHECK(cuMemFree(memory) == CUDA_SUCCESS);
        }
        void* through_runtime = nullptr;
        cudaError_t code = cudaErrorUnknown;
        cudaError_t last = cudaErrorUnknown;
        outcome = beside_capture(device, column.mode, column.who, [&] {
            code = cudaMalloc(&through_runtime, 5000);
            last = cudaGetLastError();
            return CUDA_SUCCESS;
        });
        CHECK(code == (refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
        CHECK(last == code);
        CHECK(outcome.valid == !refused);
        if (code == cudaSuccess) CHECK(cudaFree(through_runtime) == cudaSuccess);
    }
    check_pool_serves();
}

TEST_CASE("freeing beside a capture", "[capture]") {
    Device device;
    for (const Column& column : kColumns) {
        const bool refused = refused_in(column);
        const std::string where = name_of(column.mode, column.who);
        INFO(where);
        capture_target();
        const CUdeviceptr live = driver_allocate(5000);
        const CUdeviceptr neighbour = driver_allocate(5000);
        const CUdeviceptr gone = driver_allocate(5000);
        fill(pointer(neighbour), 5000, 2);
        REQUIRE(cuMemFree(gone) == CUDA_SUCCESS);
        int on_stack = 0;

        Outcome outcome =
            beside_capture(device, column.mode, column.who, [&] { return cuMemFree(live); });
        CHECK(outcome.result == (refused ? kRefused : CUDA_SUCCESS));
        CHECK(outcome.valid == !refused);
        // What was refused is still live.
        CHECK(cuMemFree(live) == (refused ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));

        outcome = beside_capture(device, column.mode, column.who, [&] { return cuMemFree(0); });
        CHECK(outcome.result == (refused ? kRefused : CUDA_SUCCESS));
        CHECK(outcome.valid == !refused);

        struct Bad {
            const char* what;
            CUdeviceptr address;
        };
        for (const Bad& bad :
             {Bad{"an interior pointer", neighbour + 512},
              Bad{"a foreign pointer", address(&on_stack)}, Bad{"a freed pointer", gone}}) {
            INFO(bad.what);
            outcome = beside_capture(device, column.mode, column.who,
                                     [&] { return cuMemFree(bad.address); });
            if (refused) {
                CHECK(outcome.result == kRefused);
            } else if (column.who == Who::capturing_thread) {
                CHECK(outcome.result == CUDA_ERROR_INVALID_VALUE);
            } else {
                measured(std::string("cuMemFree of ") + bad.what + " beside a " + where,
                         outcome.result);
                CHECK(outcome.result != CUDA_SUCCESS);
            }
            CHECK(outcome.valid == !refused);
        }

        void* const memory = allocate(5000);
        cudaError_t code = cudaErrorUnknown;
        outcome = beside_capture(device, column.mode, column.who, [&] {
            code = cudaFree(memory);
            return CUDA_SUCCESS;
        });
        CHECK(code == (refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
        CHECK(outcome.valid == !refused);
        if (refused) CHECK(cudaFree(memory) == cudaSuccess);
        outcome = beside_capture(device, column.mode, column.who, [&] {
            code = cudaFree(nullptr);
            return CUDA_SUCCESS;
        });
        measured("cudaFree(null) beside a " + where, code);
        measured("  the capture lives on", outcome.valid ? 1 : 0);

        CHECK(holds(pointer(neighbour), 5000, 2));
        CHECK(cuMemFree(neighbour) == CUDA_SUCCESS);
    }
    check_pool_serves();
}

TEST_CASE("queries beside a capture", "[capture]") {
    Device device;
    Stream other;
    cudaEvent_t event = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaEventRecord(event, other) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    for (const Column& column : kColumns) {
        const bool refused = refused_in(column);
        const std::string where = name_of(column.mode, column.who);
        INFO(where);
        const Outcome outcome =
            beside_capture(device, column.mode, column.who, [&] { return cuEventQuery(event); });
        CHECK(outcome.result == (refused ? kRefused : CUDA_SUCCESS));
        CHECK(outcome.valid == !refused);
        if (column.who == Who::capturing_thread) continue;
        const Outcome stream_outcome =
            beside_capture(device, column.mode, column.who, [&] { return cuStreamQuery(other); });
        CHECK(stream_outcome.result == (refused ? kRefused : CUDA_SUCCESS));
        CHECK(stream_outcome.valid == !refused);
    }
    CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE("free memory and attributes can be asked beside a capture", "[capture][info]") {
    Device device;
    const CUdeviceptr memory = driver_allocate(5000);
    for (const Column& column : kColumns) {
        INFO(name_of(column.mode, column.who));
        std::size_t free_bytes = 0;
        std::size_t size = 0;
        const Outcome info = beside_capture(device, column.mode, column.who,
                                            [&] { return cuMemGetInfo(&free_bytes, nullptr); });
        CHECK(info.result == CUDA_SUCCESS);
        CHECK(info.valid);
        const Outcome range = beside_capture(device, column.mode, column.who, [&] {
            return cuMemGetAddressRange(nullptr, &size, memory + 100);
        });
        CHECK(range.result == CUDA_SUCCESS);
        CHECK(range.valid);
        CHECK(size == 5000);
    }
    CHECK(cuMemFree(memory) == CUDA_SUCCESS);
}

TEST_CASE("under the relaxed exchange everything passes beside a global capture", "[capture]") {
    Device device;
    Stream other;
    for (const Who who : {Who::capturing_thread, Who::another_thread}) {
        const CUdeviceptr live = driver_allocate(5000);
        CUdeviceptr memory = 0;
        CUresult freed = CUDA_ERROR_UNKNOWN;
        CUresult queried = CUDA_ERROR_UNKNOWN;
        CUresult twice = CUDA_ERROR_UNKNOWN;
        const Outcome outcome = beside_capture(device, kGlobal, who, [&] {
            CUstreamCaptureMode mode = kRelaxed;
            cuThreadExchangeStreamCaptureMode(&mode);
            const CUresult allocated = cuMemAlloc(&memory, 5000);
            freed = cuMemFree(live);
            twice = cuMemFree(live);
            CUevent event = nullptr;
            queried = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
            if (queried == CUDA_SUCCESS) queried = cuEventRecord(event, other);
            if (queried == CUDA_SUCCESS) {
                while ((queried = cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
                    std::this_thread::yield();
            }
            cuEventDestroy(event);
            cuThreadExchangeStreamCaptureMode(&mode);
            return allocated;
        });
        CHECK(outcome.result == CUDA_SUCCESS);
        CHECK(freed == CUDA_SUCCESS);
        CHECK(twice == CUDA_ERROR_INVALID_VALUE);
        CHECK(queried == CUDA_SUCCESS);
        CHECK(outcome.valid);
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
    }
    check_pool_serves();
}
