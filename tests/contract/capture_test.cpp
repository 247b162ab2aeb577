// Allocation beside stream captures: what fails natively fails the same way, no capture is
// invalidated by the allocator, and memory that a graph uses is nobody else's.
#include "tests/contract/contract.h"

#include <functional>
#include <thread>

using namespace contract;

namespace {

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
constexpr auto kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

enum class Who { capturing_thread, another_thread };

const char* name_of(CUstreamCaptureMode mode) {
    return mode == kGlobal ? "global" : mode == kLocal ? "thread-local" : "relaxed";
}

std::string name_of(CUstreamCaptureMode mode, Who who) {
    return std::string(name_of(mode)) + " capture, " +
           (who == Who::another_thread ? "another thread" : "capturing thread");
}

struct Outcome {
    CUresult result; // of the action
    bool valid;      // whether the capture could be ended as if nothing had happened
};

// What captures write: allocated once, so that it never takes an address that a case has freed.
CUdeviceptr target() {
    static const CUdeviceptr memory = driver_allocate(4096);
    return memory;
}

// Runs `action` beside a capture in `mode`, in the capturing thread or in another one.
Outcome beside(const Device& device, CUstreamCaptureMode mode, Who who,
               const std::function<CUresult()>& action) {
    Stream stream;
    const CUdeviceptr written = target();
    REQUIRE(cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(written, 1, 4096, stream) == CUDA_SUCCESS);
    Outcome outcome{CUDA_ERROR_UNKNOWN, false};
    const auto act = [&] {
        cuCtxSetCurrent(device.context());
        outcome.result = action();
        cudaGetLastError();
    };
    if (who == Who::another_thread) {
        std::thread(act).join();
    } else {
        act();
    }
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(stream, &graph);
    outcome.valid = ended == CUDA_SUCCESS;
    if (outcome.valid) {
        REQUIRE(graph != nullptr);
        REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
    } else {
        CHECK(ended == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        CHECK(graph == nullptr);
    }
    return outcome;
}

struct Column {
    CUstreamCaptureMode mode;
    Who who;
};
constexpr Column kColumns[] = {
    {kGlobal, Who::capturing_thread},  {kLocal, Who::capturing_thread},
    {kRelaxed, Who::capturing_thread}, {kGlobal, Who::another_thread},
    {kLocal, Who::another_thread},     {kRelaxed, Who::another_thread},
};

// The calling thread's own prohibition: its own capture in a mode that is not relaxed.
bool prohibited(const Column& column) {
    return column.who == Who::capturing_thread && column.mode != kRelaxed;
}

// On the simulated CUDA it can be counted whether allocation still goes without the driver.
void check_pool_serves() {
    if (!under_shim() || !simcuda::control::simulated()) return;
    REQUIRE(cuMemFree(driver_allocate(12345)) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    const std::uint64_t before = simcuda::control::calls("cuMemAlloc_v2");
    for (int i = 0; i < 20; ++i) {
        REQUIRE(cuMemFree(driver_allocate(12345)) == CUDA_SUCCESS);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    }
    CHECK(simcuda::control::calls("cuMemAlloc_v2") - before <= 2);
}

} // namespace

TEST_CASE("allocating beside a capture", "[capture]") {
    Device device;
    for (const Column& column : kColumns) {
        const bool refused =
            prohibited(column) || (column.mode == kGlobal && column.who == Who::another_thread);
        INFO(name_of(column.mode, column.who));
        CUdeviceptr memory = 0;
        Outcome outcome =
            beside(device, column.mode, column.who, [&] { return cuMemAlloc(&memory, 5000); });
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
        outcome = beside(device, column.mode, column.who, [&] {
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
        const bool refused = prohibited(column);
        const std::string where = name_of(column.mode, column.who);
        INFO(where);
        target();
        const CUdeviceptr live = driver_allocate(5000);
        const CUdeviceptr neighbour = driver_allocate(5000);
        const CUdeviceptr gone = driver_allocate(5000);
        fill(pointer(neighbour), 5000, 2);
        REQUIRE(cuMemFree(gone) == CUDA_SUCCESS);
        int on_stack = 0;

        Outcome outcome = beside(device, column.mode, column.who, [&] { return cuMemFree(live); });
        CHECK(outcome.result == (refused ? kRefused : CUDA_SUCCESS));
        CHECK(outcome.valid == !refused);
        // What was refused is still live.
        CHECK(cuMemFree(live) == (refused ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));

        outcome = beside(device, column.mode, column.who, [&] { return cuMemFree(0); });
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
            outcome =
                beside(device, column.mode, column.who, [&] { return cuMemFree(bad.address); });
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
        outcome = beside(device, column.mode, column.who, [&] {
            code = cudaFree(memory);
            return CUDA_SUCCESS;
        });
        CHECK(code == (refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
        CHECK(outcome.valid == !refused);
        if (refused) CHECK(cudaFree(memory) == cudaSuccess);
        outcome = beside(device, column.mode, column.who, [&] {
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
        const bool refused =
            prohibited(column) || (column.mode == kGlobal && column.who == Who::another_thread);
        const std::string where = name_of(column.mode, column.who);
        INFO(where);
        const Outcome outcome =
            beside(device, column.mode, column.who, [&] { return cuEventQuery(event); });
        CHECK(outcome.result == (refused ? kRefused : CUDA_SUCCESS));
        CHECK(outcome.valid == !refused);
        if (column.who == Who::capturing_thread) continue;
        const Outcome stream_outcome =
            beside(device, column.mode, column.who, [&] { return cuStreamQuery(other); });
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
        const Outcome info = beside(device, column.mode, column.who,
                                    [&] { return cuMemGetInfo(&free_bytes, nullptr); });
        CHECK(info.result == CUDA_SUCCESS);
        CHECK(info.valid);
        const Outcome range = beside(device, column.mode, column.who, [&] {
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
        const Outcome outcome = beside(device, kGlobal, who, [&] {
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

// Blocks freed while a capture is open are not lost: more is freed in captures than the device of
// the simulated CUDA has.
TEST_CASE("memory freed inside captures comes back", "[capture][info]") {
    Device device;
    Stream stream;
    const std::size_t before = free_memory();
    for (int round = 0; round < 60; ++round) {
        void* const early = allocate(50 * kMiB);
        REQUIRE(cudaMemsetAsync(early, round, 4096, stream) == cudaSuccess);
        REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        REQUIRE(cudaFree(early) == cudaSuccess);
        void* const inside = allocate(50 * kMiB);
        REQUIRE(cudaFree(inside) == cudaSuccess);
        REQUIRE(cudaFree(inside) == cudaErrorInvalidValue);
        cudaGetLastError();
        cudaGraph_t graph = nullptr;
        REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    }
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(free_memory() + 2 * kSlackOfFree >= before);
    check_pool_serves();
}

// A graph's own memory stays its own, whatever is freed and allocated between launches.
TEST_CASE("a graph launched again and again beside frees and allocations", "[capture][order]") {
    Device device;
    Kernels kernels;
    Stream capture;
    Stream other;
    constexpr std::size_t kBytes = 256 * kKiB;
    const CUstreamCaptureMode mode = GENERATE(kGlobal, kLocal, kRelaxed);
    void* const input = allocate(kBytes);
    void* const unused = allocate(kBytes);
    void* output = allocate(kBytes);
    fill(input, kBytes, 7);
    fill(output, kBytes, 8);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);

    REQUIRE(cuStreamBeginCapture(capture, mode) == CUDA_SUCCESS);
    void* scratch = nullptr;
    if (mode == kRelaxed) {
        scratch = allocate(kBytes);
        REQUIRE(cudaFree(unused) == cudaSuccess);
        kernels.late_copy(scratch, input, kBytes, 1, capture);
        kernels.late_copy(output, scratch, kBytes, 0, capture);
    } else {
        kernels.late_copy(output, input, kBytes, 1, capture);
    }
    CUgraph graph = nullptr;
    REQUIRE(cuStreamEndCapture(capture, &graph) == CUDA_SUCCESS);
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    if (mode != kRelaxed) REQUIRE(cudaFree(unused) == cudaSuccess);

    for (std::uint32_t round = 0; round < 15; ++round) {
        void* const beside_it = allocate(kBytes);
        fill(beside_it, kBytes, 100 + round);
        void* const copy = allocate(kBytes);
        REQUIRE(cudaMemsetAsync(output, 0, kBytes, capture) == cudaSuccess);
        REQUIRE(cudaGraphLaunch(executable, capture) == cudaSuccess);
        kernels.late_copy(copy, beside_it, kBytes, 1, other);
        REQUIRE(cudaFree(beside_it) == cudaSuccess);
        void* const next = allocate(kBytes);
        REQUIRE(cudaMemsetAsync(next, 0xEE, kBytes, other) == cudaSuccess);
        REQUIRE(cudaFree(next) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(other) == cudaSuccess);
        REQUIRE(holds(copy, kBytes, 100 + round));
        REQUIRE(cudaFree(copy) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(capture) == cudaSuccess);
        REQUIRE(holds(output, kBytes, 7));
    }
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(holds(input, kBytes, 7));
    if (scratch != nullptr) CHECK(cudaFree(scratch) == cudaSuccess);
    CHECK(cudaFree(output) == cudaSuccess);
    CHECK(cudaFree(input) == cudaSuccess);
}

// Another thread allocates, uses and frees while a thread-local capture is open.
TEST_CASE("another thread works on beside a thread-local capture", "[capture][threads]") {
    Device device;
    Stream stream;
    const CUdeviceptr written = target();
    REQUIRE(cuStreamBeginCapture(stream, kLocal) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(written, 1, 4096, stream) == CUDA_SUCCESS);
    int wrong = 0;
    std::thread([&] {
        cuCtxSetCurrent(device.context());
        CUstream own = nullptr;
        wrong += cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
        for (unsigned round = 0; round < 20; ++round) {
            CUdeviceptr memory = 0;
            wrong += cuMemAlloc(&memory, 20000) != CUDA_SUCCESS;
            wrong += cuMemsetD32Async(memory, round, 5000, own) != CUDA_SUCCESS;
            std::vector<unsigned> host(5000);
            wrong += cuMemcpyDtoHAsync(host.data(), memory, 20000, own) != CUDA_SUCCESS;
            wrong += cuStreamSynchronize(own) != CUDA_SUCCESS;
            for (const unsigned word : host)
                wrong += word != round;
            wrong += cuMemFree(memory) != CUDA_SUCCESS;
        }
        cuStreamDestroy(own);
    }).join();
    CHECK(wrong == 0);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    check_pool_serves();
}

TEST_CASE("captures that end in other ways", "[capture]") {
    Device device;
    SECTION("a second begin on the same stream fails and changes nothing") {
        Stream stream;
        REQUIRE(cuStreamBeginCapture(stream, kRelaxed) == CUDA_SUCCESS);
        CHECK(cuStreamBeginCapture(stream, kRelaxed) == CUDA_ERROR_ILLEGAL_STATE);
        CUgraph graph = nullptr;
        REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
        CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    }
    SECTION("a capture that nobody began cannot be ended") {
        Stream stream;
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    }
    SECTION("the legacy stream cannot be captured") {
        CHECK(cuStreamBeginCapture(nullptr, kRelaxed) == kRefused);
    }
    SECTION("an invalidated capture refuses until it is ended") {
        Stream stream;
        REQUIRE(cuStreamBeginCapture(stream, kGlobal) == CUDA_SUCCESS);
        CUdeviceptr memory = 0;
        CHECK(cuMemAlloc(&memory, 4096) == kRefused);
        measured("cuMemAlloc beside an invalidated global capture", cuMemAlloc(&memory, 4096));
        measured("cuMemFree(0) beside an invalidated global capture", cuMemFree(0));
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        memory = driver_allocate(4096);
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
    }
    SECTION("a stream destroyed while it captures") {
        cudaStream_t stream = nullptr;
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        REQUIRE(cuStreamBeginCapture(stream, kRelaxed) == CUDA_SUCCESS);
        measured("cuStreamDestroy of a capturing stream", cuStreamDestroy(stream));
    }
    SECTION("a fork that is not joined") {
        Stream first;
        Stream second;
        CUevent event = nullptr;
        REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        const CUdeviceptr written = target();
        REQUIRE(cuStreamBeginCapture(first, kRelaxed) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD8Async(written, 1, 4096, first) == CUDA_SUCCESS);
        REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD8Async(written, 2, 4096, second) == CUDA_SUCCESS);
        const CUdeviceptr memory = driver_allocate(4096);
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(second, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        CHECK(cuStreamEndCapture(first, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
        CHECK(cuEventDestroy(event) == CUDA_SUCCESS);
    }
    SECTION("ended by another thread than began it") {
        Stream stream;
        REQUIRE(cuStreamBeginCapture(stream, kGlobal) == CUDA_SUCCESS);
        CUresult ended = CUDA_SUCCESS;
        std::thread([&] {
            cuCtxSetCurrent(device.context());
            CUgraph graph = nullptr;
            ended = cuStreamEndCapture(stream, &graph);
        }).join();
        CHECK(ended == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        CUgraph graph = nullptr; // that ended it
        CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    }
    SECTION("two captures, one inside the other") {
        Stream first;
        Stream second;
        REQUIRE(cuStreamBeginCapture(first, kRelaxed) == CUDA_SUCCESS);
        REQUIRE(cuStreamBeginCapture(second, kRelaxed) == CUDA_SUCCESS);
        const CUdeviceptr memory = driver_allocate(4096);
        CUgraph graph = nullptr;
        REQUIRE(cuStreamEndCapture(first, &graph) == CUDA_SUCCESS);
        REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
        CHECK(cuMemFree(memory) == CUDA_SUCCESS);
        const CUdeviceptr other = driver_allocate(4096);
        CHECK(cuMemFree(other) == CUDA_SUCCESS);
        REQUIRE(cuStreamEndCapture(second, &graph) == CUDA_SUCCESS);
        REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
    }
    check_pool_serves();
}
