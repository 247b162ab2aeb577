// What the small CUDA programs share: checked calls, options, checksums, a clock.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace app {

/// Ends the program with status 1 and one line on stderr unless `error` is success.
inline void check(cudaError_t error, const char* call, const char* file, int line) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, cudaGetErrorName(error),
                     cudaGetErrorString(error));
        std::exit(1);
    }
}

#define CUDA_CHECK(call) app::check((call), #call, __FILE__, __LINE__)

/// Checks the launch that came just before.
#define CUDA_CHECK_LAUNCH() app::check(cudaGetLastError(), "kernel launch", __FILE__, __LINE__)

/// Ends the program with status 1 unless `condition` holds.
inline void require(bool condition, const char* what, const char* file, int line) {
    if (!condition) {
        std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
        std::exit(1);
    }
}

#define REQUIRE_TRUE(condition) app::require((condition), #condition, __FILE__, __LINE__)

/// Mixes a word with an index; the one function that kernels and their checks share. It is a
/// bijection of `word` for every index, so a wrong word always changes the result.
__host__ __device__ inline std::uint32_t mix(std::uint32_t word, std::uint32_t index) {
    std::uint32_t x = word ^ (index * 0x9E3779B9u);
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    return x;
}

/// FNV-1a over bytes; `hash` continues an earlier one.
inline std::uint64_t checksum(const void* data, std::size_t bytes,
                              std::uint64_t hash = 0xCBF29CE484222325ull) {
    const unsigned char* p = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) {
        hash = (hash ^ p[i]) * 0x100000001B3ull;
    }
    return hash;
}

/// The value of `--name value` on the command line, else `otherwise`.
inline const char* option(int argc, char** argv, const char* name, const char* otherwise) {
    for (int i = 1; i + 1 < argc; ++i) {
        if (std::strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return otherwise;
}

/// The same for a number of at least 1; anything else ends the program with status 2.
inline int option(int argc, char** argv, const char* name, int otherwise) {
    const char* text = option(argc, argv, name, static_cast<const char*>(nullptr));
    if (!text) {
        return otherwise;
    }
    char* end = nullptr;
    long value = std::strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > 1000000000) {
        std::fprintf(stderr, "%s: a number of at least 1 is wanted, not \"%s\"\n", name, text);
        std::exit(2);
    }
    return static_cast<int>(value);
}

/// Whether a flag without a value is on the command line.
inline bool flag(int argc, char** argv, const char* name) {
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/// Seconds of the host's clock.
inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

#ifdef __CUDACC__
/// Keeps the calling device thread busy for `ns` nanoseconds; returns at once on the host.
__host__ __device__ inline void spin_ns(std::uint64_t ns) {
#ifdef __CUDA_ARCH__
    std::uint64_t start;
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start)::"memory");
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    } while (now - start < ns);
#else
    (void)ns; // On the simulated CUDA the twin declares the duration.
#endif
}

/// The calling thread's number in the whole one-dimensional launch, and how many there are.
__device__ inline std::size_t thread_index() {
    return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t thread_count() {
    return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}
#endif

} // namespace app
