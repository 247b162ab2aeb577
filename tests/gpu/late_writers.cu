// A kernel reads a buffer late, while the buffer is freed, handed out again and overwritten in
// every way that CUDA offers. No byte the kernel reads may differ.
//
// Natively cudaFree waits for the kernel, so nothing can go wrong; a pool that hands the block out
// at once must order each of these writers behind the kernel. Prints one line per way and size;
// exits 1 if a reader saw a foreign byte. On stderr: how often the freed address really came back
// (a case where it did not proves nothing).
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kReaderWaitsNs = 30'000'000;
constexpr unsigned char kBefore = 0xA5; // what the reader expects
constexpr unsigned char kAfter = 0x3C;  // what every writer writes
constexpr int kTries = 8192;            // allocations until the freed address must have come back

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "late_writers: %s: %s\n", what, cudaGetErrorString(status));
    std::exit(2);
}

void check(CUresult status, const char* what) {
    if (status == CUDA_SUCCESS) return;
    std::fprintf(stderr, "late_writers: %s: driver error %d\n", what, static_cast<int>(status));
    std::exit(2);
}

} // namespace

// Waits, then counts the bytes that are not as before.
extern "C" __global__ void read_late(const volatile unsigned char* data, std::size_t bytes,
                                     std::uint64_t wait_ns, unsigned long long* wrong) {
    app::spin_ns(wait_ns);
    unsigned long long bad = 0;
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        if (data[i] != kBefore) ++bad;
    }
    if (bad != 0) atomicAdd(wrong, bad);
}

SIMCUDA_TWIN(read_late) {
    auto data = simcuda_arg<const unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    auto wait_ns = simcuda_arg<std::uint64_t>(args, 2);
    auto wrong = simcuda_arg<unsigned long long*>(args, 3);
    sim->reads(sim, data, bytes);
    sim->writes(sim, wrong, sizeof *wrong);
    sim->duration_ns(sim, wait_ns);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < bytes; ++i) {
            if (data[i] != kBefore) ++*wrong;
        }
    });
}

extern "C" __global__ void write_bytes(unsigned char* data, std::size_t bytes) {
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        data[i] = kAfter;
    }
}

SIMCUDA_TWIN(write_bytes) {
    auto data = simcuda_arg<unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    sim->writes(sim, data, bytes);
    simcuda_body(sim, [=] { std::memset(data, kAfter, bytes); });
}

namespace {

// A driver entry point by its versioned name, as a program that is not linked to libcuda gets it.
template <class Function>
Function driver_entry(const char* name) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    void* symbol = library != nullptr ? dlsym(library, name) : nullptr;
    if (symbol == nullptr) {
        std::fprintf(stderr, "late_writers: no %s\n", name);
        std::exit(2);
    }
    return reinterpret_cast<Function>(symbol);
}

// What the writers write from and on. Made once; lives to the end of the process.
struct Tools {
    std::size_t capacity;
    std::vector<unsigned char> pageable;
    unsigned char* pinned = nullptr;
    unsigned char* device = nullptr;
    cudaStream_t blocking = nullptr;
    cudaStream_t other = nullptr; // non-blocking

    explicit Tools(std::size_t bytes) : capacity(bytes), pageable(bytes, kAfter) {
        check(cudaMallocHost(&pinned, bytes), "cudaMallocHost");
        std::memset(pinned, kAfter, bytes);
        check(cudaMalloc(&device, bytes), "cudaMalloc");
        check(cudaMemset(device, kAfter, bytes), "cudaMemset");
        check(cudaStreamCreate(&blocking), "cudaStreamCreate");
        check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreate");
    }
};

using Write = std::function<void(unsigned char* target, std::size_t bytes)>;

struct Way {
    const char* name;
    Write write;
};

void launch_memset_graph(unsigned char* target, std::size_t bytes, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaGraphNode_t node = nullptr;
    cudaMemsetParams fill{};
    fill.dst = target;
    fill.value = kAfter;
    fill.elementSize = 1;
    fill.width = bytes;
    fill.height = 1;
    check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
    check(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill), "cudaGraphAddMemsetNode");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    // Destroying waits for nothing and the launched work keeps what it needs.
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

// Graphs built by hand are missing where the driver is simulated.
bool graphs_exist() {
    cudaGraph_t graph = nullptr;
    if (cudaGraphCreate(&graph, 0) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return true;
}

std::vector<Way> all_ways(Tools& t) {
    const auto copy_h2d =
        driver_entry<CUresult (*)(CUdeviceptr, const void*, std::size_t)>("cuMemcpyHtoD_v2");
    const auto set_d8 =
        driver_entry<CUresult (*)(CUdeviceptr, unsigned char, std::size_t)>("cuMemsetD8_v2");
    const auto copy = driver_entry<CUresult (*)(CUdeviceptr, CUdeviceptr, std::size_t)>("cuMemcpy");
    const auto address = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
    std::vector<Way> ways = {
        {"cudaMemcpy pageable to device",
         [&t](unsigned char* p, std::size_t n) {
             check(cudaMemcpy(p, t.pageable.data(), n, cudaMemcpyHostToDevice), "cudaMemcpy");
         }},
        {"cudaMemcpy pinned to device",
         [&t](unsigned char* p, std::size_t n) {
             check(cudaMemcpy(p, t.pinned, n, cudaMemcpyHostToDevice), "cudaMemcpy");
         }},
        {"cudaMemcpy device to device",
         [&t](unsigned char* p, std::size_t n) {
             check(cudaMemcpy(p, t.device, n, cudaMemcpyDeviceToDevice), "cudaMemcpy");
         }},
        {"cudaMemset",
         [](unsigned char* p, std::size_t n) { check(cudaMemset(p, kAfter, n), "cudaMemset"); }},
        {"cudaMemcpy2D pageable",
         [&t](unsigned char* p, std::size_t n) {
             check(
                 cudaMemcpy2D(p, n / 4, t.pageable.data(), n / 4, n / 4, 4, cudaMemcpyHostToDevice),
                 "cudaMemcpy2D");
         }},
        {"cuMemcpyHtoD",
         [&t, copy_h2d, address](unsigned char* p, std::size_t n) {
             check(copy_h2d(address(p), t.pageable.data(), n), "cuMemcpyHtoD");
         }},
        {"cuMemsetD8",
         [set_d8, address](unsigned char* p, std::size_t n) {
             check(set_d8(address(p), kAfter, n), "cuMemsetD8");
         }},
        {"cuMemcpy",
         [&t, copy, address](unsigned char* p, std::size_t n) {
             check(copy(address(p), address(t.device), n), "cuMemcpy");
         }},
        {"async copy, legacy stream",
         [&t](unsigned char* p, std::size_t n) {
             check(cudaMemcpyAsync(p, t.pinned, n, cudaMemcpyHostToDevice, nullptr), "async copy");
         }},
        {"async copy, blocking stream",
         [&t](unsigned char* p, std::size_t n) {
             check(cudaMemcpyAsync(p, t.pinned, n, cudaMemcpyHostToDevice, t.blocking),
                   "async copy");
         }},
        {"async copy, non-blocking stream",
         [&t](unsigned char* p, std::size_t n) {
             check(cudaMemcpyAsync(p, t.pinned, n, cudaMemcpyHostToDevice, t.other), "async copy");
         }},
        {"async memset, stream created afterwards",
         [](unsigned char* p, std::size_t n) {
             cudaStream_t fresh = nullptr;
             check(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking), "cudaStreamCreate");
             check(cudaMemsetAsync(p, kAfter, n, fresh), "cudaMemsetAsync");
             check(cudaStreamDestroy(fresh), "cudaStreamDestroy");
         }},
        {"async memset, another thread's own stream",
         [](unsigned char* p, std::size_t n) {
             std::thread([p, n] {
                 check(cudaMemsetAsync(p, kAfter, n, cudaStreamPerThread), "cudaMemsetAsync");
             }).join();
         }},
        {"kernel, non-blocking stream",
         [&t](unsigned char* p, std::size_t n) {
             write_bytes<<<32, 256, 0, t.other>>>(p, n);
             check(cudaGetLastError(), "launch");
         }},
    };
    if (graphs_exist()) {
        ways.push_back({"graph launch, non-blocking stream", [&t](unsigned char* p, std::size_t n) {
                            launch_memset_graph(p, n, t.other);
                        }});
    }
    return ways;
}

// Allocates blocks of `bytes` until `wanted` comes back; the others are collected in `passed`.
// Returns the block to write to: `wanted`, or the last one tried.
unsigned char* allocate_until(const void* wanted, std::size_t bytes,
                              std::vector<unsigned char*>& passed) {
    for (int i = 0; i < kTries; ++i) {
        unsigned char* block = nullptr;
        const cudaError_t status = cudaMalloc(&block, bytes);
        if (status == cudaErrorMemoryAllocation && !passed.empty()) {
            (void)cudaGetLastError();
            break;
        }
        check(status, "cudaMalloc");
        if (block == wanted) return block;
        passed.push_back(block);
        if ((passed.size() + 1) * bytes > (std::size_t{2} << 30)) break;
    }
    unsigned char* last = passed.back();
    passed.pop_back();
    return last;
}

} // namespace

int main() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::puts("SKIP late_writers: no GPU");
        return 77;
    }
    const std::vector<std::size_t> sizes = {64, 4096, std::size_t{1} << 20, std::size_t{16} << 20};
    Tools tools(sizes.back());
    cudaStream_t reader = nullptr;
    check(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking), "cudaStreamCreate");
    unsigned long long* wrong = nullptr;
    check(cudaMalloc(&wrong, sizeof *wrong), "cudaMalloc");
    const std::vector<Way> ways = all_ways(tools);

    // Once through everything on a buffer of its own: kernels loaded, streams known.
    unsigned char* scratch = nullptr;
    check(cudaMalloc(&scratch, sizes.back()), "cudaMalloc");
    for (const Way& way : ways) {
        way.write(scratch, sizes.front());
        check(cudaDeviceSynchronize(), way.name);
    }
    read_late<<<1, 32, 0, reader>>>(scratch, 0, 0, wrong);
    check(cudaDeviceSynchronize(), "warm up");

    int corrupted = 0;
    int reused = 0;
    int cases = 0;
    for (const Way& way : ways) {
        for (std::size_t bytes : sizes) {
            unsigned char* block = nullptr;
            check(cudaMalloc(&block, bytes), "cudaMalloc");
            check(cudaMemset(block, kBefore, bytes), "cudaMemset");
            check(cudaMemset(wrong, 0, sizeof *wrong), "cudaMemset");
            check(cudaDeviceSynchronize(), "fill");
            read_late<<<64, 256, 0, reader>>>(block, bytes, kReaderWaitsNs, wrong);
            check(cudaGetLastError(), "launch");
            check(cudaFree(block), "cudaFree");
            std::vector<unsigned char*> passed;
            unsigned char* again = allocate_until(block, bytes, passed);
            way.write(again, bytes);
            check(cudaDeviceSynchronize(), "drain");
            ++cases;
            reused += again == block ? 1 : 0;
            unsigned long long bad = 0;
            check(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost), "cudaMemcpy");
            corrupted += bad != 0 ? 1 : 0;
            std::printf("%-42s %9zu bytes: %s\n", way.name, bytes, bad == 0 ? "kept" : "CORRUPTED");
            // What the program itself wrote must be there as well.
            std::vector<unsigned char> back(bytes);
            check(cudaMemcpy(back.data(), again, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
            for (unsigned char byte : back) {
                if (byte != kAfter) {
                    std::printf("%-42s %9zu bytes: the new content is WRONG\n", way.name, bytes);
                    ++corrupted;
                    break;
                }
            }
            check(cudaFree(again), "cudaFree");
            for (unsigned char* other : passed)
                check(cudaFree(other), "cudaFree");
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
    }
    std::printf("%d cases, %d corrupted\n", cases, corrupted);
    std::fprintf(stderr, "gpu-late: {\"cases\": %d, \"reused\": %d, \"corrupted\": %d}\n", cases,
                 reused, corrupted);
    return corrupted == 0 ? 0 : 1;
}
