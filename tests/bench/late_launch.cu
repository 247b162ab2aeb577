// Host time of free + allocate while a long kernel on another stream still reads the freed buffer.
//
// Native cudaFree waits for the kernel. An allocator that hands the block out at once must order
// whatever writes it next behind that kernel: the kernel checks, late, that no word has changed.
// Each round: fill p, launch the late reader of p on stream A, then three times free the block,
// allocate one of the same size, and overwrite that on stream B.
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr unsigned kPattern = 0xA5A5A5A5u;
constexpr int kPairs = 3; // fewer than three fences are younger than the oldest

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "late_launch: %s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

} // namespace

// Waits, then counts the words of `data` that differ from `expected`.
extern "C" __global__ void late_reader(const volatile unsigned* data, std::size_t words,
                                       unsigned expected, std::uint64_t wait_ns,
                                       unsigned long long* wrong) {
    app::spin_ns(wait_ns);
    unsigned long long bad = 0;
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        if (data[i] != expected) ++bad;
    }
    if (bad != 0) atomicAdd(wrong, bad);
}

SIMCUDA_TWIN(late_reader) {
    auto data = simcuda_arg<const unsigned*>(args, 0);
    auto words = simcuda_arg<std::size_t>(args, 1);
    auto expected = simcuda_arg<unsigned>(args, 2);
    auto wait_ns = simcuda_arg<std::uint64_t>(args, 3);
    auto wrong = simcuda_arg<unsigned long long*>(args, 4);
    sim->reads(sim, data, words * sizeof(unsigned));
    sim->writes(sim, wrong, sizeof *wrong);
    sim->duration_ns(sim, wait_ns);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < words; ++i) {
            if (data[i] != expected) ++*wrong;
        }
    });
}

namespace {

double microseconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
}

} // namespace

// late_launch [rounds [wait_ms [mib]]]
int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 6;
    const std::uint64_t wait_ns = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 200) * 1000000;
    const std::size_t bytes = (argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 128) << 20;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::puts("SKIP late_launch: no GPU");
        return 77;
    }
    cudaStream_t reader = nullptr;
    cudaStream_t writer = nullptr;
    check(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking), "cudaStreamCreate");
    unsigned long long* wrong = nullptr;
    check(cudaMalloc(&wrong, sizeof *wrong), "cudaMalloc");
    check(cudaMemset(wrong, 0, sizeof *wrong), "cudaMemset");
    void* block = nullptr;
    check(cudaMalloc(&block, bytes), "cudaMalloc");
    check(cudaDeviceSynchronize(), "set up");
    // Loads the kernel, which would otherwise happen behind the first timed launch.
    late_reader<<<1, 32, 0, reader>>>(static_cast<unsigned*>(block), 0, 0, 0, wrong);
    check(cudaDeviceSynchronize(), "warm up");

    // Round 0 is not reported: there the pool may still grow within its slack.
    for (int round = 0; round < rounds; ++round) {
        check(cudaMemset(block, static_cast<int>(kPattern & 0xff), bytes), "cudaMemset");
        check(cudaDeviceSynchronize(), "fill");
        const void* read = block;
        late_reader<<<132, 256, 0, reader>>>(static_cast<unsigned*>(block),
                                             bytes / sizeof(unsigned), kPattern, wait_ns, wrong);
        check(cudaGetLastError(), "launch");
        double spent[kPairs];
        int same = 0;
        for (int i = 0; i < kPairs; ++i) {
            const auto begin = std::chrono::steady_clock::now();
            check(cudaFree(block), "cudaFree");
            check(cudaMalloc(&block, bytes), "cudaMalloc");
            spent[i] = microseconds_since(begin);
            if (block == read) ++same;
            check(cudaMemsetAsync(block, i, bytes, writer), "cudaMemsetAsync");
        }
        check(cudaDeviceSynchronize(), "drain");
        if (round > 0) {
            std::printf("{\"what\": \"late\", \"us\": [%.2f, %.2f, %.2f], \"reused\": %d}\n",
                        spent[0], spent[1], spent[2], same);
        }
    }
    unsigned long long bad = 0;
    check(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::printf("{\"what\": \"late_end\", \"bytes\": %zu, \"wrong\": %llu}\n", bytes, bad);
    return bad == 0 ? 0 : 1;
}
