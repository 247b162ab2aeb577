// A kernel on a non-blocking stream reads a buffer late, while the buffer is freed, a new one of
// the same size is allocated, and the new one is overwritten in every way CUDA offers. A correct
// allocator never lets the reader see the new content.
//
// stdout: one line per way and size with the number of corrupted bytes. stderr: how often the new
// buffer had the old one's address. Status 0 only if no byte was wrong.
//   --reader-ms N (20): how long the reader waits before it reads   --rounds N (1)
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <cuda.h>

#include <algorithm>
#include <vector>

namespace {

using Byte = unsigned char;

constexpr unsigned kGrid = 64;
constexpr unsigned kBlock = 256;
constexpr Byte kOld = 0xA5;
constexpr Byte kNew = 0x3C;

} // namespace

// Waits, then copies `from` to `to`.
extern "C" __global__ void late_read(const volatile Byte* from, Byte* to, std::size_t bytes,
                                     std::uint64_t wait_ns) {
    app::spin_ns(wait_ns);
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        to[i] = from[i];
    }
}

SIMCUDA_TWIN(late_read) {
    auto from = simcuda_arg<const Byte*>(args, 0);
    auto to = simcuda_arg<Byte*>(args, 1);
    auto bytes = simcuda_arg<std::size_t>(args, 2);
    auto wait_ns = simcuda_arg<std::uint64_t>(args, 3);
    sim->reads(sim, from, bytes);
    sim->writes(sim, to, bytes);
    sim->duration_ns(sim, wait_ns);
    simcuda_body(sim, [=] { std::memcpy(to, from, bytes); });
}

extern "C" __global__ void overwrite(Byte* data, std::size_t bytes, Byte value) {
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        data[i] = value;
    }
}

SIMCUDA_TWIN(overwrite) {
    auto data = simcuda_arg<Byte*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    auto value = simcuda_arg<Byte>(args, 2);
    sim->writes(sim, data, bytes);
    simcuda_body(sim, [=] { std::memset(data, value, bytes); });
}

namespace {

// Everything a way of overwriting may need; allocated before any reader starts.
struct Stage {
    cudaStream_t reader = nullptr;   // non-blocking
    cudaStream_t blocking = nullptr; // synchronises with the legacy stream
    cudaStream_t other = nullptr;    // non-blocking, neither reader nor blocking
    Byte* pageable = nullptr;        // host and device copies of the new content
    Byte* pinned = nullptr;
    Byte* device_source = nullptr;
    Byte* out = nullptr; // where the reader puts what it saw
    decltype(&cuMemcpyHtoD) driver_htod = nullptr;
    decltype(&cuMemsetD8) driver_memset = nullptr;
    decltype(&cuMemcpy) driver_copy = nullptr;
};

void check_driver(CUresult result, const char* call) {
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "%s: driver error %d\n", call, static_cast<int>(result));
        std::exit(1);
    }
}

CUdeviceptr as_driver(const void* address) {
    return reinterpret_cast<CUdeviceptr>(address);
}

struct Way {
    const char* name;
    void (*overwrite)(const Stage& stage, Byte* dst, std::size_t bytes);
};

constexpr std::size_t kRow = 64; // Width of the two-dimensional copy; divides every size.

const Way kWays[] = {
    {"h2d_pageable",
     [](const Stage& s, Byte* dst, std::size_t n) {
         CUDA_CHECK(cudaMemcpy(dst, s.pageable, n, cudaMemcpyHostToDevice));
     }},
    {"h2d_pinned",
     [](const Stage& s, Byte* dst, std::size_t n) {
         CUDA_CHECK(cudaMemcpy(dst, s.pinned, n, cudaMemcpyHostToDevice));
     }},
    {"memset",
     [](const Stage&, Byte* dst, std::size_t n) { CUDA_CHECK(cudaMemset(dst, kNew, n)); }},
    {"d2d",
     [](const Stage& s, Byte* dst, std::size_t n) {
         CUDA_CHECK(cudaMemcpy(dst, s.device_source, n, cudaMemcpyDeviceToDevice));
     }},
    {"driver_h2d",
     [](const Stage& s, Byte* dst, std::size_t n) {
         check_driver(s.driver_htod(as_driver(dst), s.pinned, n), "cuMemcpyHtoD");
     }},
    {"driver_memset",
     [](const Stage& s, Byte* dst, std::size_t n) {
         check_driver(s.driver_memset(as_driver(dst), kNew, n), "cuMemsetD8");
     }},
    {"h2d_async_legacy",
     [](const Stage& s, Byte* dst, std::size_t n) {
         CUDA_CHECK(cudaMemcpyAsync(dst, s.pinned, n, cudaMemcpyHostToDevice, cudaStreamLegacy));
     }},
    {"h2d_async_blocking",
     [](const Stage& s, Byte* dst, std::size_t n) {
         CUDA_CHECK(cudaMemcpyAsync(dst, s.pinned, n, cudaMemcpyHostToDevice, s.blocking));
     }},
    {"driver_copy",
     [](const Stage& s, Byte* dst, std::size_t n) {
         check_driver(s.driver_copy(as_driver(dst), as_driver(s.device_source), n), "cuMemcpy");
     }},
    {"copy_2d",
     [](const Stage& s, Byte* dst, std::size_t n) {
         CUDA_CHECK(
             cudaMemcpy2D(dst, kRow, s.pinned, kRow, kRow, n / kRow, cudaMemcpyHostToDevice));
     }},
    {"kernel",
     [](const Stage& s, Byte* dst, std::size_t n) {
         overwrite<<<kGrid, kBlock, 0, s.other>>>(dst, n, kNew);
         CUDA_CHECK_LAUNCH();
     }},
};

constexpr std::size_t kSizes[] = {64, 4096, 100032, 1 << 20, 16 << 20};
constexpr std::size_t kLargest = 16 << 20;

template <typename Function>
void driver_entry(const char* name, int version, Function& out) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found{};
    CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &address, static_cast<unsigned>(version),
                                                cudaEnableDefault, &found));
    REQUIRE_TRUE(found == cudaDriverEntryPointSuccess && address != nullptr);
    out = reinterpret_cast<Function>(address);
}

void set_up(Stage& stage) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&stage.reader, cudaStreamNonBlocking));
    CUDA_CHECK(cudaStreamCreate(&stage.blocking));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stage.other, cudaStreamNonBlocking));
    stage.pageable = static_cast<Byte*>(std::malloc(kLargest));
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&stage.pinned), kLargest));
    std::memset(stage.pageable, kNew, kLargest);
    std::memset(stage.pinned, kNew, kLargest);
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&stage.device_source), kLargest));
    CUDA_CHECK(cudaMemset(stage.device_source, kNew, kLargest));
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&stage.out), kLargest));
    driver_entry("cuMemcpyHtoD", 3020, stage.driver_htod);
    driver_entry("cuMemsetD8", 3020, stage.driver_memset);
    driver_entry("cuMemcpy", 4000, stage.driver_copy);
    CUDA_CHECK(cudaDeviceSynchronize());
}

void tear_down(Stage& stage) {
    CUDA_CHECK(cudaFree(stage.out));
    CUDA_CHECK(cudaFree(stage.device_source));
    CUDA_CHECK(cudaFreeHost(stage.pinned));
    std::free(stage.pageable);
    CUDA_CHECK(cudaStreamDestroy(stage.other));
    CUDA_CHECK(cudaStreamDestroy(stage.blocking));
    CUDA_CHECK(cudaStreamDestroy(stage.reader));
}

std::size_t wrong_bytes(const Byte* device_data, std::size_t bytes, Byte expected) {
    std::vector<Byte> host(bytes);
    CUDA_CHECK(cudaMemcpy(host.data(), device_data, bytes, cudaMemcpyDeviceToHost));
    auto right = std::count(host.begin(), host.end(), expected);
    return bytes - static_cast<std::size_t>(right);
}

struct Tally {
    std::size_t corrupted = 0;
    std::size_t lost = 0; // bytes of the new buffer that are not the new content
    int cases = 0;
    int same_address = 0;
};

void run(const Stage& stage, const Way& way, std::size_t bytes, std::uint64_t wait_ns,
         Tally& tally) {
    Byte* old_buffer = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&old_buffer), bytes));
    CUDA_CHECK(cudaMemset(old_buffer, kOld, bytes));
    CUDA_CHECK(cudaMemset(stage.out, 0, bytes));
    CUDA_CHECK(cudaDeviceSynchronize());

    late_read<<<kGrid, kBlock, 0, stage.reader>>>(old_buffer, stage.out, bytes, wait_ns);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaFree(old_buffer));
    Byte* new_buffer = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&new_buffer), bytes));
    way.overwrite(stage, new_buffer, bytes);
    CUDA_CHECK(cudaDeviceSynchronize());

    std::size_t corrupted = wrong_bytes(stage.out, bytes, kOld);
    std::size_t lost = wrong_bytes(new_buffer, bytes, kNew);
    std::printf("%-20s %9zu bytes: %zu corrupted, %zu lost\n", way.name, bytes, corrupted, lost);
    ++tally.cases;
    tally.corrupted += corrupted;
    tally.lost += lost;
    tally.same_address += new_buffer == old_buffer ? 1 : 0;
    CUDA_CHECK(cudaFree(new_buffer));
}

} // namespace

int main(int argc, char** argv) {
    auto wait_ns =
        static_cast<std::uint64_t>(app::option(argc, argv, "--reader-ms", 20)) * 1000000u;
    int rounds = app::option(argc, argv, "--rounds", 1);
    Stage stage;
    set_up(stage);
    Tally tally;
    for (int round = 0; round < rounds; ++round) {
        for (const Way& way : kWays) {
            for (std::size_t bytes : kSizes) {
                run(stage, way, bytes, wait_ns, tally);
            }
        }
    }
    tear_down(stage);
    std::printf("late_reader: %d cases, %zu bytes corrupted, %zu lost\n", tally.cases,
                tally.corrupted, tally.lost);
    std::fprintf(stderr, "late_reader: the address came back in %d of %d cases\n",
                 tally.same_address, tally.cases);
    return tally.corrupted == 0 && tally.lost == 0 ? 0 : 1;
}
