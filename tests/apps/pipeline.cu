// Four streams, many items of 4 MiB: get a block, copy in from pinned memory, run a kernel, copy
// out, give the block back as soon as the copy-out is queued. What the way of getting and giving
// back does to the throughput is the question.
//
// stdout: what was computed, the same wherever and in whichever mode it runs. stderr: items/s.
//   --mode prealloc|async|malloc (malloc)   --kernel short|long|both (both)
//   --items N (400)   --rounds N (3)   --bytes N (4194304, a multiple of 4)   --json
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <algorithm>
#include <string>
#include <vector>

namespace {

using Word = std::uint32_t;
using Sum = unsigned long long;

constexpr int kStreams = 4;
constexpr int kInputs = 8;
constexpr int kMostOutputs = 64; // A multiple of kStreams, so that a slot belongs to one stream.
constexpr unsigned kGrid = 64;
constexpr unsigned kBlock = 256;
constexpr std::uint64_t kShortNs = 20000;
constexpr std::uint64_t kLongNs = 1000000;

__host__ __device__ inline Word result_word(Word word, int item) {
    return app::mix(word, static_cast<Word>(item) + 1);
}

} // namespace

// Works for a while, then transforms the block and adds it up into the item's own sum.
extern "C" __global__ void pipeline_item(Word* data, std::size_t words, int item,
                                         std::uint64_t busy_ns, Sum* sum) {
    app::spin_ns(busy_ns);
    Sum local = 0;
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        data[i] = result_word(data[i], item);
        local += data[i];
    }
    atomicAdd(sum, local);
}

SIMCUDA_TWIN(pipeline_item) {
    auto data = simcuda_arg<Word*>(args, 0);
    auto words = simcuda_arg<std::size_t>(args, 1);
    auto item = simcuda_arg<int>(args, 2);
    auto busy_ns = simcuda_arg<std::uint64_t>(args, 3);
    auto sum = simcuda_arg<Sum*>(args, 4);
    sim->reads(sim, data, words * sizeof(Word));
    sim->writes(sim, data, words * sizeof(Word));
    sim->reads(sim, sum, sizeof(Sum));
    sim->writes(sim, sum, sizeof(Sum));
    sim->duration_ns(sim, busy_ns + 5000);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < words; ++i) {
            data[i] = result_word(data[i], item);
            *sum += data[i];
        }
    });
}

namespace {

enum class Mode { prealloc, async, malloc };

struct Pipeline {
    Mode mode = Mode::malloc;
    int items = 0;
    int outputs = 0;
    std::size_t bytes = 0;
    cudaStream_t streams[kStreams] = {};
    Word* fixed[kStreams] = {}; // prealloc only
    Word* inputs[kInputs] = {}; // pinned
    std::vector<Word*> results; // pinned; item i goes to slot i % outputs
    std::vector<Sum> expected;  // per item
    Sum* sums = nullptr;        // per item, device

    std::size_t words() const { return bytes / sizeof(Word); }
};

Word input_word(int input, std::size_t i) {
    return static_cast<Word>(i) * 2246822519u + static_cast<Word>(input) * 97u;
}

Word* get(const Pipeline& p, int s) {
    void* block = p.fixed[s];
    if (p.mode == Mode::async) {
        CUDA_CHECK(cudaMallocAsync(&block, p.bytes, p.streams[s]));
    } else if (p.mode == Mode::malloc) {
        CUDA_CHECK(cudaMalloc(&block, p.bytes));
    }
    return static_cast<Word*>(block);
}

void give_back(const Pipeline& p, int s, Word* block) {
    if (p.mode == Mode::async) {
        CUDA_CHECK(cudaFreeAsync(block, p.streams[s]));
    } else if (p.mode == Mode::malloc) {
        CUDA_CHECK(cudaFree(block));
    }
}

void set_up(Pipeline& p) {
    // As the measured comparison had it: the stream-ordered pool keeps what it has.
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    if (p.mode == Mode::async) {
        cudaMemPool_t pool = nullptr;
        std::uint64_t keep = UINT64_MAX;
        CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
        CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    }
    for (int s = 0; s < kStreams; ++s) {
        CUDA_CHECK(cudaStreamCreateWithFlags(&p.streams[s], cudaStreamNonBlocking));
        if (p.mode == Mode::prealloc) {
            CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&p.fixed[s]), p.bytes));
        }
    }
    for (int input = 0; input < kInputs; ++input) {
        CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&p.inputs[input]), p.bytes));
        for (std::size_t i = 0; i < p.words(); ++i) {
            p.inputs[input][i] = input_word(input, i);
        }
    }
    p.results.resize(static_cast<std::size_t>(p.outputs));
    for (Word*& result : p.results) {
        CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&result), p.bytes));
    }
    p.expected.resize(static_cast<std::size_t>(p.items));
    for (int item = 0; item < p.items; ++item) {
        Sum sum = 0;
        for (std::size_t i = 0; i < p.words(); ++i) {
            sum += result_word(p.inputs[item % kInputs][i], item);
        }
        p.expected[static_cast<std::size_t>(item)] = sum;
    }
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&p.sums), p.expected.size() * sizeof(Sum)));
}

void tear_down(Pipeline& p) {
    CUDA_CHECK(cudaFree(p.sums));
    for (Word* result : p.results) {
        CUDA_CHECK(cudaFreeHost(result));
    }
    for (Word* input : p.inputs) {
        CUDA_CHECK(cudaFreeHost(input));
    }
    for (int s = 0; s < kStreams; ++s) {
        CUDA_CHECK(cudaFree(p.fixed[s]));
        CUDA_CHECK(cudaStreamDestroy(p.streams[s]));
    }
}

// One pass over all items; items per second.
double pass(const Pipeline& p, std::uint64_t busy_ns) {
    CUDA_CHECK(cudaMemset(p.sums, 0, p.expected.size() * sizeof(Sum)));
    for (Word* result : p.results) {
        std::memset(result, 0, p.bytes);
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    double start = app::now_s();
    for (int item = 0; item < p.items; ++item) {
        int s = item % kStreams;
        cudaStream_t stream = p.streams[s];
        Word* block = get(p, s);
        CUDA_CHECK(cudaMemcpyAsync(block, p.inputs[item % kInputs], p.bytes, cudaMemcpyHostToDevice,
                                   stream));
        pipeline_item<<<kGrid, kBlock, 0, stream>>>(block, p.words(), item, busy_ns, p.sums + item);
        CUDA_CHECK_LAUNCH();
        CUDA_CHECK(cudaMemcpyAsync(p.results[static_cast<std::size_t>(item % p.outputs)], block,
                                   p.bytes, cudaMemcpyDeviceToHost, stream));
        give_back(p, s, block);
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    return p.items / (app::now_s() - start);
}

// Items whose kernel saw wrong input, and words that came out wrong in the slots still there.
void verify(const Pipeline& p, std::size_t& wrong_items, std::size_t& wrong_words,
            std::uint64_t& hash) {
    std::vector<Sum> sums(p.expected.size());
    CUDA_CHECK(cudaMemcpy(sums.data(), p.sums, sums.size() * sizeof(Sum), cudaMemcpyDeviceToHost));
    for (std::size_t item = 0; item < sums.size(); ++item) {
        wrong_items += sums[item] != p.expected[item] ? 1 : 0;
    }
    hash = app::checksum(sums.data(), sums.size() * sizeof(Sum), hash);
    for (int item = std::max(0, p.items - p.outputs); item < p.items; ++item) {
        const Word* result = p.results[static_cast<std::size_t>(item % p.outputs)];
        for (std::size_t i = 0; i < p.words(); ++i) {
            wrong_words += result[i] != result_word(p.inputs[item % kInputs][i], item) ? 1 : 0;
        }
    }
}

// Median items/s of `rounds` passes; counts what was wrong in any of them.
bool measure(const Pipeline& p, const char* kernel, std::uint64_t busy_ns, int rounds,
             const char* mode, bool json) {
    std::vector<double> rates;
    std::size_t wrong_items = 0;
    std::size_t wrong_words = 0;
    std::uint64_t hash = app::checksum(nullptr, 0);
    pass(p, busy_ns); // Warms up: the first pass makes what later ones reuse.
    for (int round = 0; round < rounds; ++round) {
        rates.push_back(pass(p, busy_ns));
        verify(p, wrong_items, wrong_words, hash);
    }
    std::sort(rates.begin(), rates.end());
    std::printf("pipeline: %s kernel, %d items, checksum %016llx, %zu items and %zu words wrong\n",
                kernel, p.items, static_cast<unsigned long long>(hash), wrong_items, wrong_words);
    const char* format = json ? "{\"mode\": \"%s\", \"kernel\": \"%s\", \"items_per_s\": %.0f, "
                                "\"slowest\": %.0f, \"fastest\": %.0f}\n"
                              : "pipeline: %s, %s kernel: %.0f items/s (%.0f .. %.0f)\n";
    std::fprintf(stderr, format, mode, kernel, rates[rates.size() / 2], rates.front(),
                 rates.back());
    return wrong_items == 0 && wrong_words == 0;
}

} // namespace

int main(int argc, char** argv) {
    std::string mode = app::option(argc, argv, "--mode", "malloc");
    std::string kernel = app::option(argc, argv, "--kernel", "both");
    int rounds = app::option(argc, argv, "--rounds", 3);
    bool json = app::flag(argc, argv, "--json");
    bool known_kernel = kernel == "short" || kernel == "long" || kernel == "both";
    bool known_mode = mode == "prealloc" || mode == "async" || mode == "malloc";
    if (!known_kernel || !known_mode) {
        std::fprintf(stderr, "pipeline: --mode prealloc|async|malloc --kernel short|long|both\n");
        return 2;
    }
    Pipeline p;
    p.mode = mode == "prealloc" ? Mode::prealloc : mode == "async" ? Mode::async : Mode::malloc;
    p.items = app::option(argc, argv, "--items", 400);
    p.bytes = static_cast<std::size_t>(app::option(argc, argv, "--bytes", 4 << 20)) / sizeof(Word) *
              sizeof(Word);
    p.outputs = std::min(kMostOutputs, (p.items + kStreams - 1) / kStreams * kStreams);
    set_up(p);
    bool right = true;
    if (kernel != "long") {
        right = measure(p, "short", kShortNs, rounds, mode.c_str(), json) && right;
    }
    if (kernel != "short") {
        right = measure(p, "long", kLongNs, rounds, mode.c_str(), json) && right;
    }
    tear_down(p);
    return right ? 0 : 1;
}
