// Every kind of former user of a freed block, followed by every kind of next user.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace order {

namespace {

constexpr std::size_t kRow = 4096; ///< width of two-dimensional copies; divides kBytes

/// Made once per process, before anything is freed.
struct Stage {
    cudaStream_t reader = make_stream();
    cudaStream_t other = make_stream();
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    Byte* out = allocate();    ///< where former users put what they read
    Byte* source = allocate(); ///< kNew in device memory
    Byte* pinned = nullptr;    ///< kNew in pinned host memory
    Byte* sink = nullptr;      ///< pinned host memory that former users write
    std::vector<Byte> pageable = std::vector<Byte>(kBytes, kNew);

    Stage() {
        ORDER_CHECK(cudaMallocHost(reinterpret_cast<void**>(&pinned), kBytes));
        ORDER_CHECK(cudaMallocHost(reinterpret_cast<void**>(&sink), kBytes));
        std::memset(pinned, kNew, kBytes);
        ORDER_CHECK(cudaMemset(source, kNew, kBytes));
        drain();
    }
};

struct Use {
    const char* name;
    std::function<void(Byte* block)> run;
};

void capture_and_launch(cudaStream_t stream, const std::function<void()>& work) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ORDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work();
    ORDER_CHECK(cudaStreamEndCapture(stream, &graph));
    ORDER_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    ORDER_CHECK(cudaGraphLaunch(executable, stream));
    ORDER_CHECK(cudaGraphExecDestroy(executable));
    ORDER_CHECK(cudaGraphDestroy(graph));
}

/// Each still uses the block when it returns.
std::vector<Use> former_users(Stage& s) {
    const auto read = [&s](cudaStream_t stream, Byte* p) {
        ORDER_CHECK(read_late(stream, p, s.out, kBytes, kLateNs));
    };
    return {
        {"kernel, non-blocking stream", [&s, read](Byte* p) { read(s.reader, p); }},
        {"kernel, blocking stream", [&s, read](Byte* p) { read(s.blocking, p); }},
        {"kernel, legacy stream", [read](Byte* p) { read(cudaStreamLegacy, p); }},
        {"kernel, per-thread stream", [read](Byte* p) { read(cudaStreamPerThread, p); }},
        {"kernel, per-thread stream of a thread that is gone",
         [read](Byte* p) { std::thread([&] { read(cudaStreamPerThread, p); }).join(); }},
        {"kernel, destroyed stream",
         [read](Byte* p) {
             const cudaStream_t stream = make_stream();
             read(stream, p);
             ORDER_CHECK(cudaStreamDestroy(stream));
         }},
        {"graph",
         [&s, read](Byte* p) { capture_and_launch(s.reader, [&] { read(s.reader, p); }); }},
        {"copy to pinned memory",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemcpyAsync(s.sink, p, kBytes, cudaMemcpyDeviceToHost, s.reader));
         }},
        {"copy between device buffers",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemcpyAsync(s.out, p, kBytes, cudaMemcpyDeviceToDevice, s.reader));
         }},
        {"two streams",
         [&s, read](Byte* p) {
             read(s.reader, p);
             ORDER_CHECK(cudaMemcpyAsync(s.sink, p, kBytes, cudaMemcpyDeviceToHost, s.blocking));
         }},
        {"late writer", [&s](Byte* p) { ORDER_CHECK(fill(s.reader, p, kOld, kBytes, kLateNs)); }},
    };
}

std::vector<Use> next_kernels(Stage& s) {
    const auto write = [](cudaStream_t stream, Byte* p) {
        ORDER_CHECK(fill(stream, p, kNew, kBytes, 0));
    };
    return {
        {"kernel, non-blocking stream", [&s, write](Byte* p) { write(s.other, p); }},
        {"kernel, blocking stream", [&s, write](Byte* p) { write(s.blocking, p); }},
        {"kernel, legacy stream", [write](Byte* p) { write(cudaStreamLegacy, p); }},
        {"kernel, per-thread stream", [write](Byte* p) { write(cudaStreamPerThread, p); }},
        {"kernel, stream created after the free",
         [write](Byte* p) {
             const cudaStream_t stream = make_stream();
             write(stream, p);
             ORDER_CHECK(cudaStreamDestroy(stream));
         }},
        {"kernel, another thread's per-thread stream",
         [write](Byte* p) { std::thread([&] { write(cudaStreamPerThread, p); }).join(); }},
        {"kernel, another thread's new stream",
         [write](Byte* p) {
             std::thread([&] {
                 const cudaStream_t stream = make_stream();
                 write(stream, p);
                 ORDER_CHECK(cudaStreamDestroy(stream));
             }).join();
         }},
        {"graph with a kernel",
         [&s, write](Byte* p) { capture_and_launch(s.other, [&] { write(s.other, p); }); }},
        {"graph with a copy",
         [&s](Byte* p) {
             capture_and_launch(s.other, [&] {
                 ORDER_CHECK(cudaMemcpyAsync(p, s.pinned, kBytes, cudaMemcpyHostToDevice, s.other));
             });
         }},
    };
}

std::vector<Use> next_copies(Stage& s) {
    const auto address = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
    return {
        {"cudaMemcpy from pageable memory",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemcpy(p, s.pageable.data(), kBytes, cudaMemcpyHostToDevice));
         }},
        {"cudaMemcpy from pinned memory",
         [&s](Byte* p) { ORDER_CHECK(cudaMemcpy(p, s.pinned, kBytes, cudaMemcpyHostToDevice)); }},
        {"cudaMemcpy between device buffers",
         [&s](Byte* p) { ORDER_CHECK(cudaMemcpy(p, s.source, kBytes, cudaMemcpyDeviceToDevice)); }},
        {"cudaMemcpyAsync from pageable memory",
         [&s](Byte* p) {
             ORDER_CHECK(
                 cudaMemcpyAsync(p, s.pageable.data(), kBytes, cudaMemcpyHostToDevice, s.other));
         }},
        {"cudaMemcpyAsync, legacy stream",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemcpyAsync(p, s.pinned, kBytes, cudaMemcpyHostToDevice, nullptr));
         }},
        {"cudaMemcpyAsync, blocking stream",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemcpyAsync(p, s.source, kBytes, cudaMemcpyDefault, s.blocking));
         }},
        {"cudaMemcpy2D",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemcpy2D(p, kRow, s.pinned, kRow, kRow, kBytes / kRow,
                                      cudaMemcpyHostToDevice));
         }},
        {"cudaMemcpy2DAsync",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemcpy2DAsync(p, kRow, s.source, kRow, kRow, kBytes / kRow,
                                           cudaMemcpyDeviceToDevice, s.other));
         }},
        {"cudaMemset", [](Byte* p) { ORDER_CHECK(cudaMemset(p, kNew, kBytes)); }},
        {"cudaMemsetAsync",
         [&s](Byte* p) { ORDER_CHECK(cudaMemsetAsync(p, kNew, kBytes, s.other)); }},
        {"cudaMemset2DAsync",
         [&s](Byte* p) {
             ORDER_CHECK(cudaMemset2DAsync(p, kRow, kNew, kRow, kBytes / kRow, s.other));
         }},
        {"cuMemcpyHtoD",
         [&s, address](Byte* p) { ORDER_CHECK(cuMemcpyHtoD(address(p), s.pinned, kBytes)); }},
        {"cuMemcpyDtoD",
         [&s, address](Byte* p) {
             ORDER_CHECK(cuMemcpyDtoD(address(p), address(s.source), kBytes));
         }},
        {"cuMemcpy",
         [&s, address](Byte* p) { ORDER_CHECK(cuMemcpy(address(p), address(s.source), kBytes)); }},
        {"cuMemsetD8", [address](Byte* p) { ORDER_CHECK(cuMemsetD8(address(p), kNew, kBytes)); }},
        {"cuMemsetD32Async",
         [&s, address](Byte* p) {
             ORDER_CHECK(cuMemsetD32Async(address(p), 0x3C3C3C3C, kBytes / 4, s.other));
         }},
    };
}

/// Once through: use, free, allocate the same block, use; then the content must be the next user's.
void pair_up(const Stage& s, const Use& former, const Use& next, std::size_t younger) {
    std::vector<Byte*> small(younger);
    for (Byte*& one : small)
        one = allocate(512);
    Byte* block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    const std::uint64_t races = simcuda::control::races();
    former.run(block);
    release(block);
    for (Byte* one : small)
        release(one);
    Byte* const again = allocate();
    ORDER_REQUIRE(again == block, kNotReused);
    next.run(again);
    drain();
    if (simcuda::control::races() != races) {
        std::fprintf(stderr, "race: %s, then %s\n", former.name, next.name);
    }
    std::vector<Byte> content(kBytes);
    ORDER_CHECK(cudaMemcpy(content.data(), again, kBytes, cudaMemcpyDeviceToHost));
    if (content != s.pageable) {
        std::fprintf(stderr, "%s, then %s: ", former.name, next.name);
        stop(kWrongContent, "the next user's content is there", __LINE__);
    }
    release(again);
    drain();
}

void all_pairs(std::size_t younger) {
    Stage stage;
    std::vector<Use> next = next_kernels(stage);
    for (Use& one : next_copies(stage))
        next.push_back(std::move(one));
    const std::vector<Use> former = former_users(stage);
    for (const Use& first : former) {
        for (const Use& second : next)
            pair_up(stage, first, second, younger);
    }
    std::printf("%zu pairs\n", former.size() * next.size());
}

constexpr Case kCases[] = {
    {"matrix", [] { all_pairs(0); }},
    // Three and more younger fences: the pool waits on the host for the oldest block.
    {"matrix_younger", [] { all_pairs(4); }},
};

} // namespace

std::span<const Case> matrix_cases() {
    return kCases;
}

} // namespace order
