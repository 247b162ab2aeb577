// One point of the question what to do with a freed block that may still be in use: order its reuse
// on the device, wait on the host, or grow. The answers differ in throughput and in memory.
//
// Items go to N streams in turn. Each: get a block, fill it (a copy from pinned memory with
// --copies), run a kernel, copy out, and give the block back when `--live` later ones have been
// taken. A kernel finds out whether its block was written by anybody else while it ran.
//
//   --way malloc|async|fixed (malloc)   fixed: one block for each that is live, made before
//   --streams N (4)   --kernel-us N (20)   --live N (1)   --copies
//   --bytes N (4194304)   --items N (200)   --passes N (3)
// One JSON line on standard output.
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <algorithm>
#include <string>
#include <vector>

namespace {

using Word = std::uint32_t;
using Count = unsigned long long;

constexpr int kInputs = 4;
constexpr int kOutputs = 8; // a multiple of every number of streams: a slot belongs to one stream

__host__ __device__ inline Word input_word(int input, std::size_t i) {
    return app::mix(static_cast<Word>(i), static_cast<Word>(input));
}
__host__ __device__ inline Word result_word(int item, std::size_t i) {
    return app::mix(static_cast<Word>(i), static_cast<Word>(item) + 1000);
}

} // namespace

// Checks the copied input (if `input` is none, there is none), writes the item's own words, works
// for a while, and looks whether they are still there.
extern "C" __global__ void choice_item(volatile Word* data, std::size_t words, int input, int item,
                                       std::uint64_t busy_ns, Count* wrong) {
    Count bad = 0;
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        if (input >= 0 && data[i] != input_word(input, i)) ++bad;
        data[i] = result_word(item, i);
    }
    app::spin_ns(busy_ns);
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        if (data[i] != result_word(item, i)) ++bad;
    }
    if (bad != 0) atomicAdd(wrong, bad);
}

SIMCUDA_TWIN(choice_item) {
    auto data = simcuda_arg<Word*>(args, 0);
    auto words = simcuda_arg<std::size_t>(args, 1);
    auto input = simcuda_arg<int>(args, 2);
    auto item = simcuda_arg<int>(args, 3);
    auto busy_ns = simcuda_arg<std::uint64_t>(args, 4);
    auto wrong = simcuda_arg<Count*>(args, 5);
    if (input >= 0) sim->reads(sim, data, words * sizeof(Word));
    sim->writes(sim, data, words * sizeof(Word));
    sim->duration_ns(sim, busy_ns + 5000);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < words; ++i) {
            if (input >= 0 && data[i] != input_word(input, i)) ++*wrong;
            data[i] = result_word(item, i);
        }
    });
}

namespace {

enum class Way { malloc, async, fixed };

struct Bench {
    Way way = Way::malloc;
    std::size_t bytes = 0;
    std::size_t words = 0; // that the kernel touches
    int items = 0;
    int live = 1;
    bool copies = false;
    std::uint64_t busy_ns = 0;
    std::vector<cudaStream_t> streams;
    std::vector<Word*> inputs;  // pinned
    std::vector<Word*> outputs; // pinned
    std::vector<Word*> fixed;
    Count* wrong = nullptr; // device

    cudaStream_t stream_of(int item) const {
        return streams[static_cast<std::size_t>(item) % streams.size()];
    }
};

Word* get(const Bench& bench, int item) {
    void* block = nullptr;
    switch (bench.way) {
    case Way::malloc:
        CUDA_CHECK(cudaMalloc(&block, bench.bytes));
        break;
    case Way::async:
        CUDA_CHECK(cudaMallocAsync(&block, bench.bytes, bench.stream_of(item)));
        break;
    case Way::fixed:
        return bench.fixed[static_cast<std::size_t>(item) % bench.fixed.size()];
    }
    return static_cast<Word*>(block);
}

void give_back(const Bench& bench, int item, Word* block) {
    if (bench.way == Way::malloc) CUDA_CHECK(cudaFree(block));
    if (bench.way == Way::async) CUDA_CHECK(cudaFreeAsync(block, bench.stream_of(item)));
}

// Items per second of one pass.
double pass(const Bench& bench) {
    const unsigned grid = bench.copies ? 64 : 1;
    const unsigned block_size = bench.copies ? 256 : 32;
    std::vector<Word*> taken(static_cast<std::size_t>(bench.live), nullptr);
    const double start = app::now_s();
    for (int item = 0; item < bench.items; ++item) {
        Word*& slot = taken[static_cast<std::size_t>(item % bench.live)];
        if (slot != nullptr) give_back(bench, item - bench.live, slot);
        slot = get(bench, item);
        const cudaStream_t stream = bench.stream_of(item);
        const int input = bench.copies ? item % kInputs : -1;
        if (bench.copies) {
            CUDA_CHECK(cudaMemcpyAsync(slot, bench.inputs[static_cast<std::size_t>(input)],
                                       bench.bytes, cudaMemcpyHostToDevice, stream));
        }
        choice_item<<<grid, block_size, 0, stream>>>(slot, bench.words, input, item, bench.busy_ns,
                                                     bench.wrong);
        CUDA_CHECK_LAUNCH();
        if (bench.copies) {
            CUDA_CHECK(cudaMemcpyAsync(bench.outputs[static_cast<std::size_t>(item % kOutputs)],
                                       slot, bench.bytes, cudaMemcpyDeviceToHost, stream));
        }
    }
    for (int item = std::max(0, bench.items - bench.live); item < bench.items; ++item)
        give_back(bench, item, taken[static_cast<std::size_t>(item % bench.live)]);
    CUDA_CHECK(cudaDeviceSynchronize());
    return bench.items / (app::now_s() - start);
}

void set_up(Bench& bench, int streams) {
    bench.streams.resize(static_cast<std::size_t>(streams));
    for (cudaStream_t& stream : bench.streams)
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (bench.copies) {
        for (int input = 0; input < kInputs; ++input) {
            void* memory = nullptr;
            CUDA_CHECK(cudaMallocHost(&memory, bench.bytes));
            bench.inputs.push_back(static_cast<Word*>(memory));
            for (std::size_t i = 0; i < bench.words; ++i)
                bench.inputs.back()[i] = input_word(input, i);
        }
        for (int output = 0; output < kOutputs; ++output) {
            void* memory = nullptr;
            CUDA_CHECK(cudaMallocHost(&memory, bench.bytes));
            bench.outputs.push_back(static_cast<Word*>(memory));
        }
    }
    CUDA_CHECK(cudaMalloc(&bench.wrong, sizeof *bench.wrong));
    CUDA_CHECK(cudaMemset(bench.wrong, 0, sizeof *bench.wrong));
    if (bench.way == Way::async) {
        cudaMemPool_t pool = nullptr;
        std::uint64_t keep = UINT64_MAX;
        CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    }
    if (bench.way == Way::fixed) { // as many as streams at least, each block its stream's own
        const int whole = (bench.live + streams - 1) / streams * streams;
        for (int i = 0; i < whole; ++i) {
            void* memory = nullptr;
            CUDA_CHECK(cudaMalloc(&memory, bench.bytes));
            bench.fixed.push_back(static_cast<Word*>(memory));
        }
    }
    CUDA_CHECK(cudaDeviceSynchronize());
}

// What the driver's own pool held and handed out at most.
std::uint64_t pool_peak(cudaMemPoolAttr attribute) {
    cudaMemPool_t pool = nullptr;
    std::uint64_t bytes = 0;
    CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CUDA_CHECK(cudaMemPoolGetAttribute(pool, attribute, &bytes));
    return bytes;
}

} // namespace

int main(int argc, char** argv) {
    const std::string way = app::option(argc, argv, "--way", "malloc");
    const int streams = app::option(argc, argv, "--streams", 4);
    const int kernel_us = app::option(argc, argv, "--kernel-us", 20);
    const int passes = app::option(argc, argv, "--passes", 3);
    Bench bench;
    bench.way = way == "async" ? Way::async : way == "fixed" ? Way::fixed : Way::malloc;
    bench.bytes = static_cast<std::size_t>(app::option(argc, argv, "--bytes", 4 << 20));
    bench.items = app::option(argc, argv, "--items", 200);
    bench.live = app::option(argc, argv, "--live", 1);
    bench.copies = app::flag(argc, argv, "--copies");
    bench.busy_ns = static_cast<std::uint64_t>(kernel_us) * 1000;
    bench.words = std::min<std::size_t>(bench.bytes, bench.copies ? bench.bytes : 1024) / 4;
    if (kOutputs % streams != 0) {
        std::fprintf(stderr, "choice_bench: 1, 2, 4 or 8 streams\n");
        return 2;
    }
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::puts("SKIP choice_bench: no GPU");
        return 77;
    }
    set_up(bench, streams);
    std::vector<double> rates;
    pass(bench); // makes what the later ones reuse
    for (int i = 0; i < passes; ++i)
        rates.push_back(pass(bench));
    std::sort(rates.begin(), rates.end());
    Count wrong = 0;
    CUDA_CHECK(cudaMemcpy(&wrong, bench.wrong, sizeof wrong, cudaMemcpyDeviceToHost));
    const bool async = bench.way == Way::async;
    const std::uint64_t reserved = async ? pool_peak(cudaMemPoolAttrReservedMemHigh) : 0;
    const std::uint64_t used = async ? pool_peak(cudaMemPoolAttrUsedMemHigh) : 0;
    std::printf(
        "{\"way\": \"%s\", \"streams\": %d, \"kernel_us\": %d, \"live\": %d, \"copies\": %s, "
        "\"bytes\": %zu, \"items\": %d, \"items_per_s\": %.0f, \"slowest\": %.0f, "
        "\"fastest\": %.0f, \"reserved_peak\": %llu, \"used_peak\": %llu, \"wrong\": %llu}\n",
        way.c_str(), streams, kernel_us, bench.live, bench.copies ? "true" : "false", bench.bytes,
        bench.items, rates[rates.size() / 2], rates.front(), rates.back(),
        static_cast<unsigned long long>(reserved), static_cast<unsigned long long>(used), wrong);
    return wrong == 0 ? 0 : 1;
}
