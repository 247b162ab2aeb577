// A kernel reads a buffer late, while the buffer is freed, handed out again and overwritten in
// every way that CUDA offers. No byte the kernel reads may differ.
//
// Natively cudaFree waits for the kernel, and the stream-ordered calls order the next owner's
// stream behind it, so nothing can go wrong; a pool that hands the block out at once must see to it
// that each of these writers comes after the kernel. Every way of writing (late_ways.cuh) meets
// every kind of stream that the reader may be on and every mix of plain and stream-ordered calls;
// the sizes take turns, or all are tried (--sizes all).
//
// stdout: one line per way of writing with what it corrupted; status 1 if anything was. stderr: how
// often the freed address really came back (a case where it did not proves nothing), and how many
// of those cases nothing but the allocator orders.
//   --sizes turns|all (turns)   --largest BYTES (16777216)   --reader-us N (2500)   --mix N (all)
#include "tests/gpu/late_ways.cuh"

#include <algorithm>

namespace late {
namespace {

/// How the old and the new buffer are allocated, and how the old one is freed.
struct Mix {
    const char* name;
    bool old_ordered;  // cudaMallocAsync on the reader's stream, else cudaMalloc
    bool free_ordered; // cudaFreeAsync on the reader's stream, else cudaFree
    bool new_ordered;  // cudaMallocAsync on the writer's stream, else cudaMalloc
};

// cudaFree of a stream-ordered pointer is missing: it waits for nothing, so that a program must not
// call it while a kernel reads.
constexpr Mix kMixes[] = {
    {"cudaMalloc, cudaFree, cudaMalloc", false, false, false},
    {"cudaMalloc, cudaFree, cudaMallocAsync", false, false, true},
    {"cudaMallocAsync, cudaFreeAsync, cudaMallocAsync", true, true, true},
    {"cudaMallocAsync, cudaFreeAsync, cudaMalloc", true, true, false},
    {"cudaMalloc, cudaFreeAsync, cudaMalloc", false, true, false},
};
constexpr int kMixCount = sizeof kMixes / sizeof kMixes[0];

constexpr Place kReaders[] = {Place::non_blocking, Place::legacy, Place::blocking,
                              Place::per_thread};
constexpr Place kWriters[] = {Place::legacy, Place::blocking,   Place::non_blocking,
                              Place::fresh,  Place::per_thread, Place::other_thread};

struct Tally {
    int cases = 0;
    int reused = 0;    // the address came back
    int unordered = 0; // of these, CUDA's own rules do not order the writer behind the reader
    int unordered_corrupted = 0;
    int corrupted = 0;
};

struct Bench {
    Tools tools;
    cudaStream_t readers[4] = {}; // by kReaders; none is one of the writers'
    unsigned long long* wrong = nullptr;
    std::uint64_t wait_ns = 0;
    std::size_t most_bytes = std::size_t{2} << 30; // of blocks passed over in one case

    explicit Bench(std::size_t largest) : tools(largest) {
        check(cudaStreamCreateWithFlags(&readers[0], cudaStreamNonBlocking), "cudaStreamCreate");
        readers[1] = cudaStreamLegacy;
        check(cudaStreamCreate(&readers[2]), "cudaStreamCreate");
        readers[3] = cudaStreamPerThread;
        check(cudaMalloc(&wrong, 2 * sizeof *wrong), "cudaMalloc");
        // As most programs set it; otherwise the driver's pool gives all back at every wait.
        cudaMemPool_t pool = nullptr;
        std::uint64_t keep = UINT64_MAX;
        check(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
        check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "threshold");
    }
};

unsigned char* allocate(bool ordered, std::size_t bytes, cudaStream_t stream) {
    unsigned char* block = nullptr;
    if (ordered) {
        check(cudaMallocAsync(reinterpret_cast<void**>(&block), bytes, stream), "cudaMallocAsync");
    } else {
        check(cudaMalloc(&block, bytes), "cudaMalloc");
    }
    return block;
}

// Allocates until `wanted` comes back; the others are collected in `passed`. Returns the block to
// write to: `wanted`, or the last one tried. The driver's own pools never hand a block of one kind
// to a call of the other, so that few tries say enough where either call is a stream-ordered one.
unsigned char* allocate_until(const void* wanted, const Mix& mix, std::size_t bytes,
                              cudaStream_t stream, std::size_t most_bytes,
                              std::vector<unsigned char*>& passed) {
    const std::size_t most = mix.free_ordered || mix.new_ordered ? 8 : 8192;
    const std::size_t tries = std::clamp<std::size_t>(most_bytes / bytes, 1, most);
    for (std::size_t i = 0; i < tries; ++i) {
        unsigned char* block = allocate(mix.new_ordered, bytes, stream);
        if (block == wanted) return block;
        passed.push_back(block);
    }
    unsigned char* last = passed.back();
    passed.pop_back();
    return last;
}

struct Result {
    bool reused = false;
    unsigned long long misread = 0; // bytes the late reader saw wrong
    unsigned long long lost = 0;    // bytes of the new content that are not there
};

Result run(Bench& bench, const Operation& operation, Place writer, int reader, const Mix& mix,
           std::size_t bytes) {
    cudaStream_t read_on = bench.readers[reader];
    unsigned char* old_block = allocate(mix.old_ordered, bytes, read_on);
    check(cudaStreamSynchronize(read_on), "cudaStreamSynchronize");
    check(cudaMemset(old_block, kBefore, bytes), "cudaMemset");
    check(cudaMemset(bench.wrong, 0, 2 * sizeof *bench.wrong), "cudaMemset");
    check(cudaDeviceSynchronize(), "fill");

    read_late<<<64, 256, 0, read_on>>>(old_block, bytes, kBefore, bench.wait_ns, bench.wrong);
    check(cudaGetLastError(), "launch");
    check(mix.free_ordered ? cudaFreeAsync(old_block, read_on) : cudaFree(old_block), "free");
    std::vector<unsigned char*> passed;
    unsigned char* again = nullptr;
    // A plain allocation comes before a fresh stream, so that the stream is younger than it.
    if (!mix.new_ordered) {
        again = allocate_until(old_block, mix, bytes, nullptr, bench.most_bytes, passed);
    }
    at(bench.tools, writer, [&](cudaStream_t stream) {
        if (mix.new_ordered) {
            again = allocate_until(old_block, mix, bytes, stream, bench.most_bytes, passed);
        }
        check(operation.write(bench.tools, again, bytes, stream), operation.name);
    });
    check(cudaDeviceSynchronize(), "drain");

    Result result;
    result.reused = again == old_block;
    read_late<<<64, 256>>>(again, bytes, kAfter, 0, bench.wrong + 1);
    check(cudaGetLastError(), "launch");
    unsigned long long wrong[2] = {};
    check(cudaMemcpy(wrong, bench.wrong, sizeof wrong, cudaMemcpyDeviceToHost), "cudaMemcpy");
    result.misread = wrong[0];
    result.lost = wrong[1];
    passed.push_back(again);
    for (unsigned char* block : passed) {
        check(mix.new_ordered ? cudaFreeAsync(block, nullptr) : cudaFree(block), "free");
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return result;
}

void count(Tally& tally, bool ordered, const Result& result) {
    const bool corrupted = result.misread != 0 || result.lost != 0;
    ++tally.cases;
    tally.corrupted += corrupted ? 1 : 0;
    tally.reused += result.reused ? 1 : 0;
    if (!result.reused || ordered) return;
    ++tally.unordered;
    tally.unordered_corrupted += corrupted ? 1 : 0;
}

// Tries each operation once at each place on an idle device: kernels get loaded, and what this CUDA
// does not have is left out. Returns what is there.
std::vector<Operation> available(const Bench& bench) {
    std::vector<Operation> found;
    unsigned char* scratch = nullptr;
    check(cudaMalloc(&scratch, bench.tools.capacity), "cudaMalloc");
    for (const Operation& operation : all_operations()) {
        cudaError_t status = cudaSuccess;
        for (Place place : kWriters) {
            if (place == Place::legacy && !operation.legacy_allowed) continue;
            if (place != Place::legacy && !operation.on_stream) continue;
            at(bench.tools, place, [&](cudaStream_t stream) {
                const cudaError_t one = operation.write(bench.tools, scratch, 64, stream);
                if (one != cudaSuccess) status = one;
            });
            check(cudaDeviceSynchronize(), operation.name);
        }
        (void)cudaGetLastError();
        if (status == cudaSuccess) {
            found.push_back(operation);
        } else {
            std::fprintf(stderr, "late_writers: left out: %s (%s)\n", operation.name,
                         cudaGetErrorName(status));
        }
    }
    check(cudaFree(scratch), "cudaFree");
    for (cudaStream_t stream : bench.readers) {
        read_late<<<1, 32, 0, stream>>>(nullptr, 0, 0, 0, bench.wrong);
        check(cudaDeviceSynchronize(), "warm up");
    }
    return found;
}

/// One way of writing: an operation at a place, against every reader, mix and wanted size.
void run_way(Bench& bench, const Operation& operation, Place writer, int only_mix,
             const std::vector<std::size_t>& sizes, bool all_sizes, int& turn,
             Tally (&tallies)[kMixCount]) {
    int cases = 0;
    int wrong = 0;
    for (int reader = 0; reader < 4; ++reader) {
        for (int m = 0; m < kMixCount; ++m) {
            if (only_mix >= 0 && m != only_mix) continue;
            ++turn; // 4 sizes against 5 mixes and 4 readers: every pair is met within a few ways
            for (std::size_t s = 0; s < sizes.size(); ++s) {
                if (!all_sizes && s != static_cast<std::size_t>(turn + reader) % sizes.size()) {
                    continue;
                }
                const Result result = run(bench, operation, writer, reader, kMixes[m], sizes[s]);
                const bool ordered = natively_ordered(kReaders[reader], writer);
                count(tallies[m], ordered, result);
                ++cases;
                if (result.misread == 0 && result.lost == 0) continue;
                if (++wrong > 3) continue; // the first ones say enough
                std::printf("  reader %s, %s, %zu bytes: %llu misread, %llu lost\n",
                            name_of(kReaders[reader]), kMixes[m].name, sizes[s], result.misread,
                            result.lost);
            }
        }
    }
    std::printf("%-26s %-12s: %d cases, %d corrupted\n", operation.name, name_of(writer), cases,
                wrong);
}

} // namespace
} // namespace late

int main(int argc, char** argv) {
    using namespace late;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP late_writers: no GPU");
        return 77;
    }
    const bool all_sizes = std::strcmp(app::option(argc, argv, "--sizes", "turns"), "all") == 0;
    const auto largest = static_cast<std::size_t>(app::option(argc, argv, "--largest", 16 << 20));
    const char* const mix = app::option(argc, argv, "--mix", "all"); // or a number from 1 on
    const int only_mix = std::strcmp(mix, "all") == 0 ? -1 : std::atoi(mix) - 1;
    std::vector<std::size_t> sizes = {64, 4096, 1 << 20, 16 << 20};
    for (std::size_t& size : sizes)
        size = std::min(size, largest);
    Bench bench(sizes.back());
    bench.wait_ns = static_cast<std::uint64_t>(app::option(argc, argv, "--reader-us", 2500)) * 1000;

    Tally tallies[kMixCount];
    int turn = 0;
    for (const Operation& operation : available(bench)) {
        for (Place place : kWriters) {
            if (place == Place::legacy && !operation.legacy_allowed) continue;
            if (place != Place::legacy && !operation.on_stream) continue;
            run_way(bench, operation, operation.on_stream ? place : Place::implicit, only_mix,
                    sizes, all_sizes, turn, tallies);
        }
    }
    int cases = 0;
    int corrupted = 0;
    for (int m = 0; m < kMixCount; ++m) {
        const Tally& tally = tallies[m];
        cases += tally.cases;
        corrupted += tally.corrupted;
        std::fprintf(stderr,
                     "gpu-late-%d: {\"mix\": \"%s\", \"cases\": %d, \"reused\": %d, "
                     "\"unordered\": %d, \"unordered_corrupted\": %d, \"corrupted\": %d}\n",
                     m, kMixes[m].name, tally.cases, tally.reused, tally.unordered,
                     tally.unordered_corrupted, tally.corrupted);
    }
    std::printf("%d cases, %d corrupted\n", cases, corrupted);
    return corrupted == 0 ? 0 : 1;
}
