// Time of one allocate + free pair, for each way a CUDA program has of getting device memory.
//
// One process measures one round and prints one JSON line per cell; the driver script runs native
// and shim processes in turn and prints the table. Built twice from this source: with the shared
// and with the static libcudart (the runtime's own part of a pair differs, see README.md).
//
// A cell's figure is throughput, not a best case: time passed divided by pairs done, per thread.
#include <cub/util_allocator.cuh>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "pair_bench: %s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

// cudaMalloc and cudaFree: what the shim serves.
struct Plain {
    static constexpr const char* kName = "cudaMalloc";
    void pair(std::size_t bytes) {
        void* pointer = nullptr;
        check(cudaMalloc(&pointer, bytes), "cudaMalloc");
        check(cudaFree(pointer), "cudaFree");
    }
};

// The driver's stream-ordered pool, told to keep everything; each thread on a stream of its own.
struct StreamOrdered {
    static constexpr const char* kName = "cudaMallocAsync";
    cudaStream_t stream = nullptr;

    StreamOrdered() {
        cudaMemPool_t pool = nullptr;
        check(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
        std::uint64_t keep = UINT64_MAX;
        check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
              "cudaMemPoolSetAttribute");
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    void pair(std::size_t bytes) {
        void* pointer = nullptr;
        check(cudaMallocAsync(&pointer, bytes, stream), "cudaMallocAsync");
        check(cudaFreeAsync(pointer, stream), "cudaFreeAsync");
    }
};

// CUB's caching allocator, one for all threads, bins up to 1 GiB so that every size is cached.
struct Cub {
    static constexpr const char* kName = "cub::Caching";
    cudaStream_t stream = nullptr;

    static cub::CachingDeviceAllocator& allocator() {
        static cub::CachingDeviceAllocator instance(2, 9, 30, std::size_t{8} << 30, true);
        return instance;
    }
    Cub() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); }
    void pair(std::size_t bytes) {
        void* pointer = nullptr;
        check(allocator().DeviceAllocate(0, &pointer, bytes, stream), "DeviceAllocate");
        check(allocator().DeviceFree(0, pointer), "DeviceFree");
    }
};

// Nanoseconds per pair and thread. All threads start together and stop after `budget`.
template <class Way>
double measure(std::size_t bytes, unsigned threads, std::chrono::nanoseconds budget) {
    std::atomic<unsigned> ready{0};
    std::atomic<bool> go{false};
    std::vector<double> per_pair(threads);
    auto body = [&](unsigned index) {
        Way way;
        for (int i = 0; i < 20; ++i)
            way.pair(bytes);
        ready.fetch_add(1);
        while (!go.load(std::memory_order_acquire)) {
        }
        const auto begin = Clock::now();
        const auto end = begin + budget;
        std::uint64_t pairs = 0;
        auto now = begin;
        // The clock is read once per 16 pairs (a read costs 20 ns, a pair here at least 100).
        do {
            for (int i = 0; i < 16; ++i)
                way.pair(bytes);
            pairs += 16;
            now = Clock::now();
        } while (now < end);
        per_pair[index] = std::chrono::duration<double, std::nano>(now - begin).count() /
                          static_cast<double>(pairs);
    };
    std::vector<std::thread> crew;
    for (unsigned i = 1; i < threads; ++i)
        crew.emplace_back(body, i);
    // Raised by a helper, so that thread 0 measures like the others.
    std::thread starter([&] {
        while (ready.load() != threads)
            std::this_thread::yield();
        go.store(true, std::memory_order_release);
    });
    body(0);
    starter.join();
    for (auto& member : crew)
        member.join();
    double sum = 0;
    for (double value : per_pair)
        sum += value;
    return sum / threads;
}

template <class Way>
void cell(std::size_t bytes, unsigned threads, std::chrono::nanoseconds budget) {
    std::printf("{\"what\": \"%s\", \"bytes\": %zu, \"threads\": %u, \"ns\": %.1f}\n", Way::kName,
                bytes, threads, measure<Way>(bytes, threads, budget));
    std::fflush(stdout);
}

} // namespace

// pair_bench [--peers | --async] [--stream] [--budget-ms N]
//   --async    cudaMallocAsync as well, which the shim serves too; it makes a stream for each
//   thread
//   --stream   there is a non-blocking stream from the start, as in most programs
int main(int argc, char** argv) {
    bool peers = false;
    bool stream_ordered = false;
    bool stream = false;
    long budget_ms = 10;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--peers") == 0) {
            peers = true;
        } else if (std::strcmp(argv[i], "--async") == 0) {
            stream_ordered = true;
        } else if (std::strcmp(argv[i], "--stream") == 0) {
            stream = true;
        } else if (std::strcmp(argv[i], "--budget-ms") == 0 && i + 1 < argc) {
            budget_ms = std::strtol(argv[++i], nullptr, 10);
        } else {
            std::fprintf(stderr, "usage: %s [--peers | --async] [--stream] [--budget-ms N]\n",
                         argv[0]);
            return 2;
        }
    }
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::puts("SKIP pair_bench: no GPU");
        return 77;
    }
    check(cudaFree(nullptr), "context");
    cudaStream_t idle = nullptr;
    if (stream) check(cudaStreamCreateWithFlags(&idle, cudaStreamNonBlocking), "cudaStreamCreate");

    const std::chrono::nanoseconds budget = std::chrono::milliseconds(budget_ms);
    const std::vector<std::size_t> sizes = {std::size_t{4} << 10, std::size_t{1} << 20,
                                            std::size_t{16} << 20, std::size_t{256} << 20};
    auto all = [&](auto way) {
        using Way = decltype(way);
        for (std::size_t bytes : sizes)
            cell<Way>(bytes, 1, budget);
        cell<Way>(sizes[0], 8, budget);
    };
    all(Plain{});
    if (peers || stream_ordered) all(StreamOrdered{});
    if (peers) all(Cub{});
    return 0;
}
