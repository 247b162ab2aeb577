// What late_writers and stitched share: the mixes of calls, the streams of the late reader and of
// the writer, and the ways of writing that this CUDA has.
#pragma once

#include "tests/gpu/late_ways.cuh"

#include <vector>

namespace late {

/// How the old and the new buffer are allocated, and how the old one is freed.
struct Mix {
    const char* name;
    bool old_ordered;  // cudaMallocAsync on the reader's stream, else cudaMalloc
    bool free_ordered; // cudaFreeAsync on the reader's stream, else cudaFree
    bool new_ordered;  // cudaMallocAsync on the writer's stream, else cudaMalloc
};

// cudaFree of a stream-ordered pointer is missing: it waits for nothing, so that a program must not
// call it while a kernel reads.
inline constexpr Mix kMixes[] = {
    {"cudaMalloc, cudaFree, cudaMalloc", false, false, false},
    {"cudaMalloc, cudaFree, cudaMallocAsync", false, false, true},
    {"cudaMallocAsync, cudaFreeAsync, cudaMallocAsync", true, true, true},
    {"cudaMallocAsync, cudaFreeAsync, cudaMalloc", true, true, false},
    {"cudaMalloc, cudaFreeAsync, cudaMalloc", false, true, false},
};
inline constexpr int kMixCount = sizeof kMixes / sizeof kMixes[0];

inline constexpr Place kReaders[] = {Place::non_blocking, Place::legacy, Place::blocking,
                                     Place::per_thread};
inline constexpr Place kWriters[] = {Place::legacy, Place::blocking,   Place::non_blocking,
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
    // Blocks that a case got before the wanted one stay allocated until the next size: soon the
    // pool has no other block of the size to give than the one just freed.
    std::vector<unsigned char*> plain_fillers;
    std::vector<unsigned char*> ordered_fillers;

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

inline unsigned char* allocate(bool ordered, std::size_t bytes, cudaStream_t stream) {
    unsigned char* block = nullptr;
    if (ordered) {
        check(cudaMallocAsync(reinterpret_cast<void**>(&block), bytes, stream), "cudaMallocAsync");
    } else {
        check(cudaMalloc(&block, bytes), "cudaMalloc");
    }
    return block;
}

inline void release(bool ordered, unsigned char* block) {
    check(ordered ? cudaFreeAsync(block, nullptr) : cudaFree(block), "free");
}

struct Result {
    bool reused = false;
    unsigned long long misread = 0; // bytes the late reader saw wrong
    unsigned long long lost = 0;    // bytes of the new content that are not there
};

inline void count(Tally& tally, bool ordered, const Result& result) {
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
inline std::vector<Operation> available(const Bench& bench) {
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

/// One way of writing: an operation at a place; what came of it.
struct Way {
    Operation operation;
    Place place;
    int cases = 0;
    int wrong = 0;
};

inline std::vector<Way> all_ways(const Bench& bench) {
    std::vector<Way> ways;
    for (const Operation& operation : available(bench)) {
        for (Place place : kWriters) {
            if (place == Place::legacy && !operation.legacy_allowed) continue;
            if (place != Place::legacy && !operation.on_stream) continue;
            ways.push_back({operation, operation.on_stream ? place : Place::implicit});
        }
    }
    return ways;
}

} // namespace late
