// Stream capture and allocation. A capture in relaxed mode with allocations beside it and inside
// it, whose graph is then launched while buffers come and go; and the calls that must fail inside
// a global or thread-local capture, with the code they fail with and what becomes of the capture.
//
// stdout: the same wherever it runs.   --launches N (20)
#include "tests/apps/sum_kernels.cuh"

#include <thread>

namespace {

using app::Sum;
using app::Word;

constexpr std::size_t kWords = 40000;
constexpr std::size_t kBytes = kWords * sizeof(Word);

Word* allocate() {
    Word* data = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), kBytes));
    return data;
}

void launch_fill(Word* data, Word tag, cudaStream_t stream) {
    fill_words<<<app::kSumGrid, app::kSumBlock, 0, stream>>>(data, kWords, tag);
    CUDA_CHECK_LAUNCH();
}

void launch_add(const Word* data, Sum* sum, cudaStream_t stream) {
    add_words<<<app::kSumGrid, app::kSumBlock, 0, stream>>>(data, kWords, sum);
    CUDA_CHECK_LAUNCH();
}

/// Allocates, frees and uses memory while and after a relaxed capture is open.
bool relaxed_capture(int launches, cudaStream_t stream) {
    Word* kept = allocate();
    Word* freed_inside = allocate();
    Sum* sum = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(Sum)));
    CUDA_CHECK(cudaMemsetAsync(sum, 0, sizeof(Sum), stream));
    launch_fill(freed_inside, 1, stream); // Also loads the kernels before the capture begins.
    launch_add(freed_inside, sum, stream);
    CUDA_CHECK(cudaDeviceSynchronize());

    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    launch_fill(kept, 2, stream);
    Word* made_inside = allocate();
    CUDA_CHECK(cudaFree(freed_inside));
    CUDA_CHECK(cudaMemcpyAsync(made_inside, kept, kBytes, cudaMemcpyDeviceToDevice, stream));
    launch_add(made_inside, sum, stream);
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));

    for (int i = 0; i < launches; ++i) {
        CUDA_CHECK(cudaGraphLaunch(executable, stream));
        Word* beside = allocate();
        launch_fill(beside, static_cast<Word>(i), stream);
        launch_add(beside, sum, stream);
        CUDA_CHECK(cudaFree(beside));
    }
    Sum total = 0;
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaGraphExecDestroy(executable));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaFree(kept));
    CUDA_CHECK(cudaFree(made_inside));
    CUDA_CHECK(cudaFree(sum));

    Sum expected = app::pattern_sum(1, kWords);
    for (int i = 0; i < launches; ++i) {
        expected += app::pattern_sum(2, kWords) + app::pattern_sum(static_cast<Word>(i), kWords);
    }
    std::printf("capture: relaxed, %d launches, checksum %016llx, %s\n", launches, total,
                total == expected ? "right" : "WRONG");
    return total == expected;
}

/// Runs `action` inside a capture of `mode`, in the capturing thread or in another one. Prints
/// what it returned and what ending the capture returned.
template <typename Action>
bool inside(const char* name, cudaStreamCaptureMode mode, bool other_thread, Word* data,
            cudaStream_t stream, Action action, cudaError_t expected, cudaError_t expected_end) {
    static const char* const kModes[] = {"global", "thread-local", "relaxed"};
    CUDA_CHECK(cudaStreamBeginCapture(stream, mode));
    launch_fill(data, 3, stream);
    cudaError_t result = cudaSuccess;
    auto act = [&] {
        result = action();
        cudaGetLastError(); // What failed on purpose is not the next call's error.
    };
    if (other_thread) {
        std::thread(act).join();
    } else {
        act();
    }
    cudaGraph_t graph = nullptr;
    cudaError_t end = cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    if (graph) {
        CUDA_CHECK(cudaGraphDestroy(graph));
    }
    std::printf("capture: %s, %s in %s thread: %s, then %s\n", kModes[mode], name,
                other_thread ? "another" : "the capturing", cudaGetErrorName(result),
                cudaGetErrorName(end));
    return result == expected && end == expected_end;
}

bool failing_captures(cudaStream_t stream) {
    Word* data = allocate();
    Word* spare = nullptr;
    auto malloc_spare = [&] { return cudaMalloc(reinterpret_cast<void**>(&spare), kBytes); };
    auto free_spare = [&] {
        cudaError_t error = cudaFree(spare);
        spare = error == cudaSuccess ? nullptr : spare;
        return error;
    };
    constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
    constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;
    constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;
    constexpr auto kRefused = cudaErrorStreamCaptureUnsupported;
    constexpr auto kInvalid = cudaErrorStreamCaptureInvalidated;
    bool right = true;
    right &= inside("cudaMalloc", kGlobal, false, data, stream, malloc_spare, kRefused, kInvalid);
    right &= inside("cudaMalloc", kLocal, false, data, stream, malloc_spare, kRefused, kInvalid);
    right &= inside("cudaMalloc", kGlobal, true, data, stream, malloc_spare, kRefused, kInvalid);
    CUDA_CHECK(malloc_spare());
    right &= inside("cudaFree", kGlobal, false, data, stream, free_spare, kRefused, kInvalid);
    right &= inside("cudaFree", kLocal, false, data, stream, free_spare, kRefused, kInvalid);
    right &= inside("cudaFree", kGlobal, true, data, stream, free_spare, kRefused, kInvalid);
    CUDA_CHECK(free_spare());
    right &=
        inside("cudaMalloc", kLocal, true, data, stream, malloc_spare, cudaSuccess, cudaSuccess);
    right &=
        inside("cudaFree", kRelaxed, false, data, stream, free_spare, cudaSuccess, cudaSuccess);
    CUDA_CHECK(cudaFree(data));
    return right;
}

} // namespace

int main(int argc, char** argv) {
    int launches = app::option(argc, argv, "--launches", 20);
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    bool right = relaxed_capture(launches, stream);
    right = failing_captures(stream) && right;
    CUDA_CHECK(cudaStreamDestroy(stream));
    CUDA_CHECK(cudaDeviceSynchronize());
    std::printf("capture: %s\n", right ? "right" : "WRONG");
    return right ? 0 : 1;
}
