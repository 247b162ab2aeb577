// The CUDA calls that name a stream, twice: as an ordinary program makes them, and as one compiled
// for per-thread default streams does (other entry points, `_ptsz` and `_ptds`).
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace random_programs {

struct Calls {
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void**, void**);
    CUresult (*launch_ex)(const CUlaunchConfig*, CUfunction, void**, void**);
    cudaError_t (*memset_async)(void*, int, std::size_t, cudaStream_t);
    cudaError_t (*memcpy_async)(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t);
    cudaError_t (*memcpy_2d_async)(void*, std::size_t, const void*, std::size_t, std::size_t,
                                   std::size_t, cudaMemcpyKind, cudaStream_t);
    cudaError_t (*memcpy_peer_async)(void*, int, const void*, int, std::size_t, cudaStream_t);
    cudaError_t (*malloc_async)(void**, std::size_t, cudaStream_t);
    cudaError_t (*free_async)(void*, cudaStream_t);
    cudaError_t (*record)(cudaEvent_t, cudaStream_t);
    cudaError_t (*wait)(cudaStream_t, cudaEvent_t, unsigned);
    cudaError_t (*synchronize)(cudaStream_t);
    cudaError_t (*query)(cudaStream_t);
    cudaError_t (*host_func)(cudaStream_t, cudaHostFn_t, void*);
    cudaError_t (*begin_capture)(cudaStream_t, cudaStreamCaptureMode);
    cudaError_t (*end_capture)(cudaStream_t, cudaGraph_t*);
    cudaError_t (*graph_launch)(cudaGraphExec_t, cudaStream_t);
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    CUresult (*write_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
};

extern const Calls kOrdinaryCalls;
extern const Calls kPerThreadCalls;

} // namespace random_programs
