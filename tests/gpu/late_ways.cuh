// Every way of writing to device memory that late_writers tries: which call it is (an Operation)
// and which stream and host thread it works on (a Place).
#pragma once

#include "tests/gpu/late_kernels.cuh"

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

namespace late {

inline void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(2);
}

/// A driver entry point by its versioned name, as a program that is not linked to libcuda gets it.
template <class Function>
Function driver_entry(const char* name) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    void* symbol = library != nullptr ? dlsym(library, name) : nullptr;
    if (symbol == nullptr) {
        std::fprintf(stderr, "no driver entry point %s\n", name);
        std::exit(2);
    }
    return reinterpret_cast<Function>(symbol);
}

/// What the writers write from and on. Made once; lives to the end of the process.
struct Tools {
    std::size_t capacity;
    std::vector<unsigned char> pageable;
    unsigned char* pinned = nullptr;
    unsigned char* device = nullptr;
    cudaStream_t blocking = nullptr;
    cudaStream_t other = nullptr; // non-blocking
    decltype(&cuMemcpyHtoD) driver_h2d = driver_entry<decltype(&cuMemcpyHtoD)>("cuMemcpyHtoD_v2");
    decltype(&cuMemsetD8) driver_memset = driver_entry<decltype(&cuMemsetD8)>("cuMemsetD8_v2");
    decltype(&cuMemcpy) driver_copy = driver_entry<decltype(&cuMemcpy)>("cuMemcpy");

    explicit Tools(std::size_t bytes) : capacity(bytes), pageable(bytes, kAfter) {
        check(cudaMallocHost(&pinned, bytes), "cudaMallocHost");
        std::memset(pinned, kAfter, bytes);
        check(cudaMalloc(&device, bytes), "cudaMalloc");
        check(cudaMemset(device, kAfter, bytes), "cudaMemset");
        check(cudaStreamCreate(&blocking), "cudaStreamCreate");
        check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreate");
    }
};

/// Where a call works. `implicit`: calls that name no stream; they use the legacy one.
enum class Place { implicit, legacy, blocking, non_blocking, fresh, per_thread, other_thread };

inline const char* name_of(Place place) {
    static const char* const kNames[] = {"implicit", "legacy",     "blocking",    "non-blocking",
                                         "fresh",    "per-thread", "other thread"};
    return kNames[static_cast<int>(place)];
}

/// Whether CUDA's own rules order a writer behind a reader, allocation or not. The legacy stream
/// and every blocking one, per-thread default streams included, wait for each other; nothing else
/// does.
inline bool natively_ordered(Place reader, Place writer) {
    const auto legacy = [](Place p) { return p == Place::implicit || p == Place::legacy; };
    const auto blocks = [](Place p) { return p != Place::non_blocking && p != Place::fresh; };
    if (legacy(reader)) return blocks(writer);
    if (legacy(writer)) return blocks(reader);
    return reader == Place::per_thread && writer == Place::per_thread;
}

/// Runs `work` with the stream of a place, in the thread that the place asks for.
template <class Work>
void at(const Tools& tools, Place place, const Work& work) {
    switch (place) {
    case Place::implicit:
    case Place::legacy:
        return work(nullptr);
    case Place::blocking:
        return work(tools.blocking);
    case Place::non_blocking:
        return work(tools.other);
    case Place::per_thread:
        return work(cudaStreamPerThread);
    case Place::other_thread:
        std::thread([&work] { work(cudaStreamPerThread); }).join();
        return;
    case Place::fresh:
        break;
    }
    cudaStream_t fresh = nullptr;
    check(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking), "cudaStreamCreate");
    work(fresh);
    check(cudaStreamDestroy(fresh), "cudaStreamDestroy");
}

using Write = cudaError_t (*)(const Tools& tools, unsigned char* to, std::size_t bytes,
                              cudaStream_t stream);

/// One call that writes `bytes` (a multiple of 4) with kAfter. What it returns other than success
/// when it is tried first, on an idle device, says that this CUDA has no such call.
struct Operation {
    const char* name;
    Write write;
    bool on_stream;      // else it works on the legacy stream
    bool legacy_allowed; // whether the legacy stream may be named
};

inline cudaError_t as_runtime(CUresult status) {
    return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

inline CUdeviceptr address(const void* p) {
    return reinterpret_cast<CUdeviceptr>(p);
}

inline cudaMemcpy3DParms copy_3d(const Tools& tools, unsigned char* to, std::size_t bytes) {
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(tools.pinned, bytes / 4, bytes / 4, 2);
    copy.dstPtr = make_cudaPitchedPtr(to, bytes / 4, bytes / 4, 2);
    copy.extent = make_cudaExtent(bytes / 4, 2, 2);
    copy.kind = cudaMemcpyHostToDevice;
    return copy;
}

/// Launches a graph of one node, which `add` adds.
template <class Add>
cudaError_t launch_graph(cudaStream_t stream, Add add) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaError_t status = cudaGraphCreate(&graph, 0);
    if (status != cudaSuccess) return status;
    status = add(graph);
    if (status == cudaSuccess) status = cudaGraphInstantiate(&executable, graph, 0);
    if (status == cudaSuccess) {
        status = cudaGraphLaunch(executable, stream);
        // Destroying waits for nothing and the launched work keeps what it needs.
        check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    }
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return status;
}

inline cudaError_t launch_memset_graph(const Tools&, unsigned char* to, std::size_t bytes,
                                       cudaStream_t stream) {
    return launch_graph(stream, [=](cudaGraph_t graph) {
        cudaGraphNode_t node = nullptr;
        cudaMemsetParams fill{};
        fill.dst = to;
        fill.value = kAfter;
        fill.elementSize = 1;
        fill.width = bytes;
        fill.height = 1;
        return cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill);
    });
}

inline cudaError_t launch_copy_graph(const Tools& tools, unsigned char* to, std::size_t bytes,
                                     cudaStream_t stream) {
    return launch_graph(stream, [&tools, to, bytes](cudaGraph_t graph) {
        cudaGraphNode_t node = nullptr;
        return cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, to, tools.device, bytes,
                                        cudaMemcpyDeviceToDevice);
    });
}

inline cudaError_t launch_kernel_graph(const Tools&, unsigned char* to, std::size_t bytes,
                                       cudaStream_t stream) {
    return launch_graph(stream, [=](cudaGraph_t graph) mutable {
        cudaGraphNode_t node = nullptr;
        void* arguments[] = {&to, &bytes};
        cudaKernelNodeParams kernel{};
        kernel.func = reinterpret_cast<void*>(&write_bytes);
        kernel.gridDim = dim3(kGrid);
        kernel.blockDim = dim3(kBlock);
        kernel.kernelParams = arguments;
        return cudaGraphAddKernelNode(&node, graph, nullptr, 0, &kernel);
    });
}

inline cudaError_t launch_extended(const Tools&, unsigned char* to, std::size_t bytes,
                                   cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kGrid);
    config.blockDim = dim3(kBlock);
    config.stream = stream;
    void* arguments[] = {&to, &bytes};
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&write_bytes), arguments);
}

inline cudaError_t launch_cooperative(const Tools&, unsigned char* to, std::size_t bytes,
                                      cudaStream_t stream) {
    void* arguments[] = {&to, &bytes};
    return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&write_bytes), dim3(kGrid),
                                       dim3(kBlock), arguments, 0, stream);
}

#if CUDART_VERSION >= 13000
inline cudaError_t copy_batch(const Tools& tools, unsigned char* to, std::size_t bytes,
                              cudaStream_t stream) {
    // Looked up: a runtime older than the headers has none.
    using Batch = cudaError_t(void* const*, const void* const*, const std::size_t*, std::size_t,
                              cudaMemcpyAttributes*, std::size_t*, std::size_t, cudaStream_t);
    static const auto batch = reinterpret_cast<Batch*>(dlsym(RTLD_DEFAULT, "cudaMemcpyBatchAsync"));
    if (batch == nullptr) return cudaErrorNotSupported;
    void* targets[] = {to, to + bytes / 2};
    const void* sources[] = {tools.device, tools.device};
    std::size_t sizes[] = {bytes / 2, bytes - bytes / 2};
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    return batch(targets, sources, sizes, 2, &attributes, &first, 1, stream);
}
#endif

/// All of them. Small functions without state, so that a table can hold them.
inline std::vector<Operation> all_operations() {
    using T = const Tools&;
    using P = unsigned char*;
    using N = std::size_t;
    using S = cudaStream_t;
    constexpr auto kH2d = cudaMemcpyHostToDevice;
    constexpr auto kD2d = cudaMemcpyDeviceToDevice;
    std::vector<Operation> all = {
        {"cudaMemcpy pageable",
         [](T t, P p, N n, S) { return cudaMemcpy(p, t.pageable.data(), n, kH2d); }, false, true},
        {"cudaMemcpy pinned", [](T t, P p, N n, S) { return cudaMemcpy(p, t.pinned, n, kH2d); },
         false, true},
        {"cudaMemcpy on device", [](T t, P p, N n, S) { return cudaMemcpy(p, t.device, n, kD2d); },
         false, true},
        {"cudaMemset", [](T, P p, N n, S) { return cudaMemset(p, kAfter, n); }, false, true},
        {"cudaMemcpy2D",
         [](T t, P p, N n, S) {
             return cudaMemcpy2D(p, n / 4, t.pageable.data(), n / 4, n / 4, 4, kH2d);
         },
         false, true},
        {"cudaMemset2D", [](T, P p, N n, S) { return cudaMemset2D(p, n / 4, kAfter, n / 4, 4); },
         false, true},
        {"cudaMemcpy3D",
         [](T t, P p, N n, S) {
             const cudaMemcpy3DParms copy = copy_3d(t, p, n);
             return cudaMemcpy3D(&copy);
         },
         false, true},
        {"cuMemcpyHtoD",
         [](T t, P p, N n, S) {
             return as_runtime(t.driver_h2d(address(p), t.pageable.data(), n));
         },
         false, true},
        {"cuMemsetD8",
         [](T t, P p, N n, S) { return as_runtime(t.driver_memset(address(p), kAfter, n)); }, false,
         true},
        {"cuMemcpy",
         [](T t, P p, N n, S) {
             return as_runtime(t.driver_copy(address(p), address(t.device), n));
         },
         false, true},
        {"async copy pinned",
         [](T t, P p, N n, S s) { return cudaMemcpyAsync(p, t.pinned, n, kH2d, s); }, true, true},
        {"async copy pageable",
         [](T t, P p, N n, S s) { return cudaMemcpyAsync(p, t.pageable.data(), n, kH2d, s); }, true,
         true},
        {"async copy on device",
         [](T t, P p, N n, S s) { return cudaMemcpyAsync(p, t.device, n, kD2d, s); }, true, true},
        {"async copy, kind inferred",
         [](T t, P p, N n, S s) { return cudaMemcpyAsync(p, t.pinned, n, cudaMemcpyDefault, s); },
         true, true},
        {"async copy 2D",
         [](T t, P p, N n, S s) {
             return cudaMemcpy2DAsync(p, n / 4, t.pinned, n / 4, n / 4, 4, kH2d, s);
         },
         true, true},
        {"async copy 3D",
         [](T t, P p, N n, S s) {
             const cudaMemcpy3DParms copy = copy_3d(t, p, n);
             return cudaMemcpy3DAsync(&copy, s);
         },
         true, true},
        {"async copy between peers",
         [](T t, P p, N n, S s) { return cudaMemcpyPeerAsync(p, 0, t.device, 0, n, s); }, true,
         true},
        {"async memset", [](T, P p, N n, S s) { return cudaMemsetAsync(p, kAfter, n, s); }, true,
         true},
        {"async memset 2D",
         [](T, P p, N n, S s) { return cudaMemset2DAsync(p, n / 4, kAfter, n / 4, 4, s); }, true,
         true},
        {"kernel",
         [](T, P p, N n, S s) {
             write_bytes<<<kGrid, kBlock, 0, s>>>(p, n);
             return cudaGetLastError();
         },
         true, true},
        {"kernel, extended launch", launch_extended, true, true},
        {"kernel, cooperative", launch_cooperative, true, true},
        {"graph with a memset", launch_memset_graph, true, true},
        {"graph with a copy", launch_copy_graph, true, true},
        {"graph with a kernel", launch_kernel_graph, true, true},
    };
#if CUDART_VERSION >= 13000
    all.push_back({"batch of copies", copy_batch, true, false});
#endif
    return all;
}

} // namespace late
