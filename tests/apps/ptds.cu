// Compiled with --default-stream per-thread: every thread's <<< >>> and plain copies run on a
// stream of its own that no cudaStreamCreate made. Threads allocate and free at the same time,
// by cudaMalloc and by cudaMallocAsync on stream 0.
//
// stdout: one line, the same wherever it runs.   --threads N (4)   --buffers N (40): per thread
#include "tests/apps/sum_kernels.cuh"

#include <thread>
#include <vector>

namespace {

using app::Sum;
using app::Word;

std::size_t words_of(int buffer) {
    return 1000 + static_cast<std::size_t>(buffer * 4099 % 50000);
}

Word tag_of(int thread, int buffer) {
    return static_cast<Word>(thread * 777 + buffer + 5);
}

void work(int thread, int buffers, Sum& result) {
    Sum* sum = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(Sum)));
    CUDA_CHECK(cudaMemset(sum, 0, sizeof(Sum)));
    for (int buffer = 0; buffer < buffers; ++buffer) {
        bool ordered = buffer % 3 == 2;
        std::size_t words = words_of(buffer);
        std::size_t bytes = words * sizeof(Word);
        Word* data = nullptr;
        if (ordered) {
            CUDA_CHECK(cudaMallocAsync(reinterpret_cast<void**>(&data), bytes, 0));
        } else {
            CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), bytes));
        }
        fill_words<<<app::kSumGrid, app::kSumBlock>>>(data, words, tag_of(thread, buffer));
        CUDA_CHECK_LAUNCH();
        add_words<<<app::kSumGrid, app::kSumBlock>>>(data, words, sum);
        CUDA_CHECK_LAUNCH();
        if (ordered) {
            CUDA_CHECK(cudaFreeAsync(data, 0));
        } else {
            CUDA_CHECK(cudaFree(data));
        }
    }
    CUDA_CHECK(cudaMemcpy(&result, sum, sizeof(Sum), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(sum));
}

} // namespace

int main(int argc, char** argv) {
    int count = app::option(argc, argv, "--threads", 4);
    int buffers = app::option(argc, argv, "--buffers", 40);
    std::vector<Sum> results(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) {
        threads.emplace_back(work, t, buffers, std::ref(results[static_cast<std::size_t>(t)]));
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    Sum total = 0;
    Sum expected = 0;
    for (int t = 0; t < count; ++t) {
        total += results[static_cast<std::size_t>(t)];
        for (int buffer = 0; buffer < buffers; ++buffer) {
            expected += app::pattern_sum(tag_of(t, buffer), words_of(buffer));
        }
    }
    std::printf("ptds: %d threads, %d buffers each, checksum %016llx, %s\n", count, buffers, total,
                total == expected ? "right" : "WRONG");
    return total == expected ? 0 : 1;
}
