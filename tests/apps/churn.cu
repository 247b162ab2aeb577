// A program that calls cudaMalloc and cudaFree in its loop, as plug-ins and codes without a pool
// do: every step allocates scratch buffers of several sizes, fills them by memset, copy and
// kernel, and frees them.
//
// stdout: one line, the same wherever it runs. stderr: what it cost.
//   --iterations N (200)   --streams N (2)   --json: the cost as one JSON object
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <algorithm>
#include <vector>

namespace {

using Word = std::uint32_t;
using Sum = unsigned long long;

constexpr std::size_t kBytes[] = {4096, 100000, 1 << 20, 3000000, 4 << 20};
constexpr int kSizes = sizeof kBytes / sizeof kBytes[0];
constexpr int kFills = 4; // Contents repeat, so that the expected sums are few.
constexpr unsigned kBlock = 256;

// One step over one word: the new word and its share of the sum.
__host__ __device__ inline Sum step(Word* data, std::size_t i) {
    data[i] = app::mix(data[i], static_cast<Word>(i));
    return data[i];
}

} // namespace

extern "C" __global__ void churn_step(Word* data, std::size_t words, Sum* sum) {
    Sum local = 0;
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        local += step(data, i);
    }
    atomicAdd(sum, local); // Addition commutes: the total does not depend on the order.
}

SIMCUDA_TWIN(churn_step) {
    auto data = simcuda_arg<Word*>(args, 0);
    auto words = simcuda_arg<std::size_t>(args, 1);
    auto sum = simcuda_arg<Sum*>(args, 2);
    sim->reads(sim, data, words * sizeof(Word));
    sim->writes(sim, data, words * sizeof(Word));
    sim->reads(sim, sum, sizeof(Sum));
    sim->writes(sim, sum, sizeof(Sum));
    sim->duration_ns(sim, 5000 + words / 100);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < words; ++i) {
            *sum += step(data, i);
        }
    });
}

namespace {

std::size_t words_of(int size) {
    return kBytes[size] / sizeof(Word);
}

// The first half comes from the host, the second from a memset.
Word host_word(std::size_t i, int fill) {
    return static_cast<Word>(i) * 2654435761u + static_cast<Word>(fill);
}
int memset_byte(int fill) {
    return 17 * fill + 3;
}

Sum expected_sum(int size, int fill) {
    std::vector<Word> data(words_of(size));
    std::memset(data.data(), memset_byte(fill), data.size() * sizeof(Word));
    for (std::size_t i = 0; i < data.size() / 2; ++i) {
        data[i] = host_word(i, fill);
    }
    Sum sum = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
        sum += step(data.data(), i);
    }
    return sum;
}

struct Cost {
    double allocator_s = 0;
    std::size_t pairs = 0;
    std::size_t peak_bytes = 0;
};

void* timed_malloc(std::size_t bytes, Cost& cost) {
    void* address = nullptr;
    double start = app::now_s();
    CUDA_CHECK(cudaMalloc(&address, bytes));
    cost.allocator_s += app::now_s() - start;
    ++cost.pairs;
    return address;
}

void timed_free(void* address, Cost& cost) {
    double start = app::now_s();
    CUDA_CHECK(cudaFree(address));
    cost.allocator_s += app::now_s() - start;
}

std::size_t free_bytes() {
    std::size_t free_now = 0;
    std::size_t total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_now, &total));
    return free_now;
}

void print_cost(const Cost& cost, double total_s, bool json) {
    double total_ms = total_s * 1e3;
    double allocator_ms = cost.allocator_s * 1e3;
    double peak_mib = static_cast<double>(cost.peak_bytes) / (1 << 20);
    const char* format =
        json ? "{\"pairs\": %zu, \"total_ms\": %.3f, \"allocator_ms\": %.3f, "
               "\"pair_us\": %.3f, \"peak_mib\": %.1f}\n"
             : "churn: %zu pairs, %.1f ms in all, %.1f ms inside cudaMalloc and cudaFree "
               "(%.2f us a pair), peak device memory %.1f MiB\n";
    std::fprintf(stderr, format, cost.pairs, total_ms, allocator_ms,
                 allocator_ms * 1e3 / static_cast<double>(cost.pairs), peak_mib);
}

} // namespace

int main(int argc, char** argv) {
    int iterations = app::option(argc, argv, "--iterations", 200);
    int stream_count = app::option(argc, argv, "--streams", 2);

    std::vector<cudaStream_t> streams(static_cast<std::size_t>(stream_count));
    for (cudaStream_t& stream : streams) {
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    Word* staging[kFills] = {};
    std::size_t staging_words = words_of(kSizes - 1) / 2;
    for (int fill = 0; fill < kFills; ++fill) {
        CUDA_CHECK(
            cudaMallocHost(reinterpret_cast<void**>(&staging[fill]), staging_words * sizeof(Word)));
        for (std::size_t i = 0; i < staging_words; ++i) {
            staging[fill][i] = host_word(i, fill);
        }
    }
    std::vector<Sum*> sums(streams.size());
    for (std::size_t s = 0; s < streams.size(); ++s) {
        CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&sums[s]), sizeof(Sum)));
        CUDA_CHECK(cudaMemset(sums[s], 0, sizeof(Sum)));
    }
    CUDA_CHECK(cudaDeviceSynchronize());

    Cost cost;
    std::size_t free_at_start = free_bytes();
    double start = app::now_s();
    for (int iteration = 0; iteration < iterations; ++iteration) {
        Word* buffers[kSizes] = {};
        int fill = iteration % kFills;
        for (int size = 0; size < kSizes; ++size) {
            std::size_t s = static_cast<std::size_t>(iteration + size) % streams.size();
            std::size_t words = words_of(size);
            auto* data = static_cast<Word*>(timed_malloc(kBytes[size], cost));
            buffers[size] = data;
            CUDA_CHECK(cudaMemsetAsync(data, memset_byte(fill), kBytes[size], streams[s]));
            CUDA_CHECK(cudaMemcpyAsync(data, staging[fill], words / 2 * sizeof(Word),
                                       cudaMemcpyHostToDevice, streams[s]));
            unsigned grid = static_cast<unsigned>(std::min<std::size_t>(words / kBlock, 512));
            churn_step<<<grid, kBlock, 0, streams[s]>>>(data, words, sums[s]);
            CUDA_CHECK_LAUNCH();
        }
        if (iteration % 16 == 0) { // Asking costs time; the steps are alike.
            std::size_t used = free_at_start - std::min(free_at_start, free_bytes());
            cost.peak_bytes = std::max(cost.peak_bytes, used);
        }
        for (int size = kSizes - 1; size >= 0; --size) {
            timed_free(buffers[size], cost);
        }
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    double total_s = app::now_s() - start;

    Sum total = 0;
    for (Sum* sum : sums) {
        Sum value = 0;
        CUDA_CHECK(cudaMemcpy(&value, sum, sizeof value, cudaMemcpyDeviceToHost));
        CUDA_CHECK(cudaFree(sum));
        total += value;
    }
    Sum expected = 0;
    for (int size = 0; size < kSizes; ++size) {
        for (int fill = 0; fill < kFills; ++fill) {
            int times = iterations / kFills + (fill < iterations % kFills ? 1 : 0);
            expected += expected_sum(size, fill) * static_cast<Sum>(times);
        }
    }
    for (Word* words : staging) {
        CUDA_CHECK(cudaFreeHost(words));
    }
    for (cudaStream_t stream : streams) {
        CUDA_CHECK(cudaStreamDestroy(stream));
    }
    std::printf("churn: %d iterations, checksum %016llx, %s\n", iterations, total,
                total == expected ? "right" : "WRONG");
    print_cost(cost, total_s, app::flag(argc, argv, "--json"));
    return total == expected ? 0 : 1;
}
