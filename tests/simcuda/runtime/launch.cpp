// Kernel launches, all through the driver's cuLaunchKernel family.
#include "tests/simcuda/runtime/kernels.h"
#include "tests/simcuda/runtime/pointers.h"
#include "tests/simcuda/runtime/state.h"

#include <vector>

namespace simcuda::runtime {
namespace {

struct LaunchShape {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
};

/// The shapes between <<< >>> and the stub's launch; nested when an argument launches itself.
std::vector<LaunchShape>& pending_shapes() {
    thread_local std::vector<LaunchShape> shapes;
    return shapes;
}

Result launch(const Driver& driver, const void* kernel, dim3 grid, dim3 block, void** args,
              size_t shared_bytes, cudaStream_t stream) {
    CUfunction function = nullptr;
    Result result = kernel_function(driver, kernel, function);
    if (!result.ok()) {
        return result;
    }
    return driver.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                 static_cast<unsigned>(shared_bytes), stream, args, nullptr);
}

Result launch_config(const Driver& driver, const cudaLaunchConfig_t* config, const void* kernel,
                     void** args) {
    if (!config) {
        return cudaErrorInvalidValue;
    }
    CUfunction function = nullptr;
    Result result = kernel_function(driver, kernel, function);
    if (!result.ok()) {
        return result;
    }
    // Launch attributes have one layout and one numbering in both interfaces.
    static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute));
    CUlaunchConfig wanted{};
    wanted.gridDimX = config->gridDim.x;
    wanted.gridDimY = config->gridDim.y;
    wanted.gridDimZ = config->gridDim.z;
    wanted.blockDimX = config->blockDim.x;
    wanted.blockDimY = config->blockDim.y;
    wanted.blockDimZ = config->blockDim.z;
    wanted.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
    wanted.hStream = config->stream;
    wanted.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
    wanted.numAttrs = config->numAttrs;
    return driver.cuLaunchKernelEx(&wanted, function, args, nullptr);
}

} // namespace
} // namespace simcuda::runtime

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                CUstream_st* stream) {
    simcuda::runtime::pending_shapes().push_back({grid, block, shared_bytes, stream});
    return 0;
}

extern "C" cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                  void* stream) {
    auto& shapes = simcuda::runtime::pending_shapes();
    if (shapes.empty()) {
        return simcuda::runtime::remember(cudaErrorMissingConfiguration);
    }
    *grid = shapes.back().grid;
    *block = shapes.back().block;
    *shared_bytes = shapes.back().shared_bytes;
    *static_cast<cudaStream_t*>(stream) = shapes.back().stream;
    shapes.pop_back();
    return cudaSuccess;
}

RUNTIME_API(nothing, __cudaGetKernel, (cudaKernel_t * handle, const void* stub),
            { return kernel_handle(stub, *handle); })

RUNTIME_API(nothing, cudaGetKernel, (cudaKernel_t * handle, const void* stub),
            { return handle ? kernel_handle(stub, *handle) : Result(cudaErrorInvalidValue); })

RUNTIME_API(context, cudaGetFuncBySymbol, (cudaFunction_t * function, const void* stub), {
    return function ? kernel_function(driver, stub, *function) : Result(cudaErrorInvalidValue);
})

RUNTIME_TWINS(_ptsz, __cudaLaunchKernel,
              (cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
               cudaStream_t stream),
              { return launch(driver, kernel, grid, block, args, shared_bytes, stream); })

RUNTIME_TWINS(_ptsz, cudaLaunchKernel,
              (const void* stub, dim3 grid, dim3 block, void** args, size_t shared_bytes,
               cudaStream_t stream),
              { return launch(driver, stub, grid, block, args, shared_bytes, stream); })

RUNTIME_TWINS(_ptsz, cudaLaunchKernelExC,
              (const cudaLaunchConfig_t* config, const void* stub, void** args),
              { return launch_config(driver, config, stub, args); })

RUNTIME_TWINS(_ptsz, cudaLaunchCooperativeKernel,
              (const void* stub, dim3 grid, dim3 block, void** args, size_t shared_bytes,
               cudaStream_t stream),
              {
                  CUfunction function = nullptr;
                  Result result = kernel_function(driver, stub, function);
                  if (!result.ok()) {
                      return result;
                  }
                  return driver.cuLaunchCooperativeKernel(
                      function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                      static_cast<unsigned>(shared_bytes), stream, args);
              })

RUNTIME_API(context, cudaFuncGetAttributes, (cudaFuncAttributes * out, const void* stub), {
    CUfunction function = nullptr;
    Result result = kernel_function(driver, stub, function);
    if (!result.ok()) {
        return result;
    }
    *out = cudaFuncAttributes{};
    auto ask = [&](CUfunction_attribute attribute) {
        int value = 0;
        driver.cuFuncGetAttribute(&value, attribute, function);
        return value;
    };
    out->sharedSizeBytes = static_cast<size_t>(ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
    out->constSizeBytes = static_cast<size_t>(ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
    out->localSizeBytes = static_cast<size_t>(ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    out->maxThreadsPerBlock = ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    out->numRegs = ask(CU_FUNC_ATTRIBUTE_NUM_REGS);
    out->ptxVersion = ask(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    out->binaryVersion = ask(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    out->maxDynamicSharedSizeBytes = ask(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    return cudaSuccess;
})

RUNTIME_API(context, cudaFuncSetAttribute,
            (const void* stub, cudaFuncAttribute attribute, int value), {
                CUfunction function = nullptr;
                Result result = kernel_function(driver, stub, function);
                return result.ok()
                           ? Result(driver.cuFuncSetAttribute(
                                 function, static_cast<CUfunction_attribute>(attribute), value))
                           : result;
            })

RUNTIME_API(context, cudaFuncSetCacheConfig, (const void* stub, cudaFuncCache config), {
    CUfunction function = nullptr;
    Result result = kernel_function(driver, stub, function);
    return result.ok()
               ? Result(driver.cuFuncSetCacheConfig(function, static_cast<CUfunc_cache>(config)))
               : result;
})

RUNTIME_API(context, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
            (int* blocks, const void* stub, int block_size, size_t shared_bytes, unsigned flags), {
                CUfunction function = nullptr;
                Result result = kernel_function(driver, stub, function);
                if (!result.ok()) {
                    return result;
                }
                return driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                    blocks, function, block_size, shared_bytes, flags);
            })

RUNTIME_API(context, cudaOccupancyMaxActiveBlocksPerMultiprocessor,
            (int* blocks, const void* stub, int block_size, size_t shared_bytes), {
                CUfunction function = nullptr;
                Result result = kernel_function(driver, stub, function);
                if (!result.ok()) {
                    return result;
                }
                return driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                    blocks, function, block_size, shared_bytes, 0);
            })
