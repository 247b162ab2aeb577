// What the cases of the contract share.
//
// Every assertion states what a program observes natively; the same binary runs with and without
// the shim, on the simulated CUDA and on a GPU. Where the native answer is not known for certain, a
// case prints it (measured()) and asserts only what the contract demands, so that two runs can be
// compared.
#pragma once

#include "tests/simcuda/control.h"

#include <catch2/catch.hpp>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace contract {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;
inline constexpr std::size_t kGiB = 1024 * kMiB;

/// By how much two readings of free memory may differ where nothing is held: the driver's own
/// granules, and what an allocator keeps of a segment that it shares with something live.
inline constexpr std::size_t kSlackOfFree = 32 * kMiB;

inline CUdeviceptr address(const void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}
inline void* pointer(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);
}

/// Moves a pointer by bytes.
inline void* plus(void* pointer, std::size_t bytes) {
    return static_cast<char*>(pointer) + bytes;
}

/// Whether the shim serves this process (by its environment); whether cudaFree waits as natively,
/// as far as the freeing thread can tell: always, except under free:async; and whether it really
/// does in any case, so that it finds the faults of what it waits for: not under free:auto either.
bool under_shim();
bool free_waits();
bool free_finds_faults();

/// Whether memory of cudaMalloc is mapped piece by piece (expandable_segments:True): it cannot be
/// exported, and SYNC_MEMOPS is not supported.
bool memory_is_mapped();

/// Prints `measured: <what> = <value>`; nothing that differs from run to run belongs there.
void measured(const std::string& what, cudaError_t value);
void measured(const std::string& what, CUresult value);
void measured(const std::string& what, long long value);

/// Prints `SKIP <what>: <why>`.
void skipped(const std::string& what, const std::string& why);

/// Device 0 with its primary context current on this thread, through the runtime, and the kernels
/// loaded into it. Ends with an idle context and a last error of success.
class Device {
  public:
    Device();
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    CUcontext context() const { return context_; }

  private:
    CUcontext context_ = nullptr;
};

/// The kernels, loaded into the current context.
class Kernels {
  public:
    Kernels();
    ~Kernels();
    Kernels(const Kernels&) = delete;
    Kernels& operator=(const Kernels&) = delete;

    /// After `ms` milliseconds copies `bytes` (a multiple of 4) on the device.
    void late_copy(void* to, const void* from, std::size_t bytes, unsigned ms,
                   cudaStream_t stream) const;
    /// Writes where nothing is mapped.
    void fault(cudaStream_t stream) const;

  private:
    CUmodule module_ = nullptr;
    CUfunction late_copy_ = nullptr;
    CUfunction fault_ = nullptr;
};

/// A non-blocking stream.
class Stream {
  public:
    Stream() { REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess); }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator cudaStream_t() const { return stream_; } // NOLINT: stands for the handle

  private:
    cudaStream_t stream_ = nullptr;
};

/// cudaMalloc and cuMemAlloc that must succeed.
void* allocate(std::size_t bytes);
CUdeviceptr driver_allocate(std::size_t bytes);

/// Writes the pattern of `tag` with a synchronous copy; whether all bytes still hold it. They go
/// through the driver, so that they work in any current context.
void fill(const void* memory, std::size_t bytes, std::uint32_t tag);
bool holds(const void* memory, std::size_t bytes, std::uint32_t tag);

/// What the device has free by its own account.
std::size_t free_memory();

/// Checks that a call failed with `error`, and that cudaGetLastError says so once.
#define CHECK_FAILS(call, error)                                                                   \
    do {                                                                                           \
        CHECK((call) == (error));                                                                  \
        CHECK(cudaPeekAtLastError() == (error));                                                   \
        CHECK(cudaGetLastError() == (error));                                                      \
        CHECK(cudaGetLastError() == cudaSuccess);                                                  \
    } while (false)

/// The seed of a random case: $CONTRACT_SEED, else 1. Prints it.
std::mt19937 random_source(const char* what);

/// Runs the hidden case `name` of this program in a process of its own, with `more` environment
/// (NAME=value), and waits for it. Its exit status, or 1000 + the signal that ended it.
int run_alone(const std::string& name, const std::vector<std::string>& more = {});

/// Ends a process that runs a case alone if it hangs.
void limit_this_process(unsigned seconds);

/// A case that runs in a process of its own: what it does to contexts, to the device or to the
/// allocator's level of caution must not reach the others.
#define CONTRACT_JOIN_(a, b) a##b
#define CONTRACT_JOIN(a, b) CONTRACT_JOIN_(a, b)
#define CONTRACT_ALONE(function, name, tags)                                                       \
    static void function();                                                                        \
    TEST_CASE(name, tags) {                                                                        \
        CHECK(contract::run_alone("alone: " name) == 0);                                           \
    }                                                                                              \
    TEST_CASE("alone: " name, "[.alone]") {                                                        \
        contract::limit_this_process(100);                                                         \
        function();                                                                                \
    }                                                                                              \
    static void function()
#define ALONE_TEST_CASE(name, tags)                                                                \
    CONTRACT_ALONE(CONTRACT_JOIN(contract_alone_, __LINE__), name, tags)

} // namespace contract
