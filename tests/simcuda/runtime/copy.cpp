// Copies and fills. Each kind of copy goes to the driver entry that the real runtime uses for it.
#include "tests/simcuda/runtime/copy_params.h"
#include "tests/simcuda/runtime/pointers.h"
#include "tests/simcuda/runtime/state.h"

namespace simcuda::runtime {
namespace {

Result copy(const Driver& driver, void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return driver.cuMemcpyHtoD(device(dst), src, bytes);
    case cudaMemcpyDeviceToHost:
        return driver.cuMemcpyDtoH(dst, device(src), bytes);
    case cudaMemcpyDeviceToDevice:
        return driver.cuMemcpyDtoD(device(dst), device(src), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return driver.cuMemcpy(device(dst), device(src), bytes);
    }
    return cudaErrorInvalidMemcpyDirection;
}

Result copy_async(const Driver& driver, void* dst, const void* src, size_t bytes,
                  cudaMemcpyKind kind, cudaStream_t stream) {
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return driver.cuMemcpyHtoDAsync(device(dst), src, bytes, stream);
    case cudaMemcpyDeviceToHost:
        return driver.cuMemcpyDtoHAsync(dst, device(src), bytes, stream);
    case cudaMemcpyDeviceToDevice:
        return driver.cuMemcpyDtoDAsync(device(dst), device(src), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return driver.cuMemcpyAsync(device(dst), device(src), bytes, stream);
    }
    return cudaErrorInvalidMemcpyDirection;
}

/// Both ends' primary contexts, then `copy_between(dst context, src context)`.
template <typename Copy>
Result between(int dst_device, int src_device, Copy&& copy_between) {
    CUcontext dst_context = nullptr;
    CUcontext src_context = nullptr;
    Result result = primary_context(dst_device, dst_context);
    if (result.ok()) {
        result = primary_context(src_device, src_context);
    }
    return result.ok() ? Result(copy_between(dst_context, src_context)) : result;
}

} // namespace
} // namespace simcuda::runtime

RUNTIME_TWINS(_ptds, cudaMemcpy, (void* dst, const void* src, size_t bytes, cudaMemcpyKind kind),
              { return copy(driver, dst, src, bytes, kind); })

RUNTIME_TWINS(_ptsz, cudaMemcpyAsync,
              (void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
              { return copy_async(driver, dst, src, bytes, kind, stream); })

RUNTIME_API(context, cudaMemcpyPeer,
            (void* dst, int dst_device, const void* src, int src_device, size_t bytes), {
                return between(dst_device, src_device, [&](CUcontext to, CUcontext from) {
                    return driver.cuMemcpyPeer(device(dst), to, device(src), from, bytes);
                });
            })

RUNTIME_API(context, cudaMemcpyPeerAsync,
            (void* dst, int dst_device, const void* src, int src_device, size_t bytes,
             cudaStream_t stream),
            {
                return between(dst_device, src_device, [&](CUcontext to, CUcontext from) {
                    return driver.cuMemcpyPeerAsync(device(dst), to, device(src), from, bytes,
                                                    stream);
                });
            })

RUNTIME_TWINS(_ptds, cudaMemcpy2D,
              (void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
               size_t height, cudaMemcpyKind kind),
              {
                  CUDA_MEMCPY2D params{};
                  Result result =
                      describe_copy_2d(params, dst, dst_pitch, src, src_pitch, width, height, kind);
                  return result.ok() ? Result(driver.cuMemcpy2DUnaligned(&params)) : result;
              })

RUNTIME_TWINS(_ptsz, cudaMemcpy2DAsync,
              (void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
               size_t height, cudaMemcpyKind kind, cudaStream_t stream),
              {
                  CUDA_MEMCPY2D params{};
                  Result result =
                      describe_copy_2d(params, dst, dst_pitch, src, src_pitch, width, height, kind);
                  return result.ok() ? Result(driver.cuMemcpy2DAsync(&params, stream)) : result;
              })

RUNTIME_TWINS(_ptds, cudaMemcpy3D, (const cudaMemcpy3DParms* wanted), {
    CUDA_MEMCPY3D params{};
    Result result = describe_copy_3d(params, wanted);
    return result.ok() ? Result(driver.cuMemcpy3D(&params)) : result;
})

RUNTIME_TWINS(_ptsz, cudaMemcpy3DAsync, (const cudaMemcpy3DParms* wanted, cudaStream_t stream), {
    CUDA_MEMCPY3D params{};
    Result result = describe_copy_3d(params, wanted);
    return result.ok() ? Result(driver.cuMemcpy3DAsync(&params, stream)) : result;
})

RUNTIME_TWINS(_ptds, cudaMemset, (void* dst, int value, size_t bytes),
              { return driver.cuMemsetD8(device(dst), static_cast<unsigned char>(value), bytes); })

RUNTIME_TWINS(_ptsz, cudaMemsetAsync, (void* dst, int value, size_t bytes, cudaStream_t stream), {
    return driver.cuMemsetD8Async(device(dst), static_cast<unsigned char>(value), bytes, stream);
})

RUNTIME_TWINS(_ptds, cudaMemset2D,
              (void* dst, size_t pitch, int value, size_t width, size_t height), {
                  return driver.cuMemsetD2D8(device(dst), pitch, static_cast<unsigned char>(value),
                                             width, height);
              })

RUNTIME_TWINS(_ptsz, cudaMemset2DAsync,
              (void* dst, size_t pitch, int value, size_t width, size_t height,
               cudaStream_t stream),
              {
                  return driver.cuMemsetD2D8Async(
                      device(dst), pitch, static_cast<unsigned char>(value), width, height, stream);
              })
