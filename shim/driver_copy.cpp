// Copies that may write host memory, and functions of the host in a stream: what the host may look
// at afterwards (host_watch.h). An asynchronous one is outstanding from its acceptance on; after a
// blocking one whatever is idle is known to be done.
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/submit.h"

namespace cachealloc::shim {

namespace {

// `visible` says whether the host may see what the call does; it is asked after the call and only
// if that matters.
template <class Visible, class Call>
CUresult submit(Entry entry, CUstream stream, bool per_thread_api, Visible visible, Call call) {
    look_at_submit(entry, stream, per_thread_api);
    const CUresult result = call();
    Process* const state = process();
    if (result != CUDA_SUCCESS || state == nullptr || !state->host_watch.on()) return result;
    if (visible(state->host_watch)) state->host_watch.submitted(stream, per_thread_api);
    return result;
}

template <class Call>
CUresult blocking(Entry entry, bool per_thread_api, Call call) {
    look_at_submit(entry, nullptr, per_thread_api);
    const CUresult result = call();
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr) state->host_watch.settle_idle();
    return result;
}

bool always(const HostWatch&) {
    return true;
}

template <class Copy>
auto to_host(const Copy* copy) {
    return [copy](const HostWatch& watch) {
        return watch.may_be_host(copy->dstMemoryType, copy->dstDevice);
    };
}

auto any_to_host(const CUdeviceptr* pointers, std::size_t count) {
    return [pointers, count](const HostWatch& watch) {
        constexpr std::size_t kMost = 64; // of more, one is taken to be the host's
        if (count > kMost) return true;
        for (std::size_t i = 0; i < count; ++i) {
            if (watch.may_be_host(pointers[i])) return true;
        }
        return false;
    };
}

} // namespace

#define SUBMITTED(name, per_thread_api, visible, params, args)                                     \
    CUresult hook_##name params {                                                                  \
        return submit(Entry::name, stream, per_thread_api, visible,                                \
                      [&] { return real.name args; });                                             \
    }
// A call and its twin for per-thread default streams.
#define TWINS(name, visible, params, args)                                                         \
    SUBMITTED(name, false, visible, params, args)                                                  \
    SUBMITTED(name##_ptsz, true, visible, params, args)

TWINS(cuMemcpyAsync, any_to_host(&dst, 1),
      (CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, CUstream stream),
      (dst, src, bytes, stream))
TWINS(cuMemcpyPeerAsync, any_to_host(&dst, 1),
      (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
       std::size_t bytes, CUstream stream),
      (dst, dst_context, src, src_context, bytes, stream))
SUBMITTED(cuMemcpyDtoHAsync, false, always,
          (void* dst, unsigned int src, unsigned int bytes, CUstream stream),
          (dst, src, bytes, stream))
TWINS(cuMemcpyDtoHAsync_v2, always,
      (void* dst, CUdeviceptr src, std::size_t bytes, CUstream stream), (dst, src, bytes, stream))
SUBMITTED(cuMemcpyAtoHAsync, false, always,
          (void* dst, CUarray src, unsigned int offset, unsigned int bytes, CUstream stream),
          (dst, src, offset, bytes, stream))
TWINS(cuMemcpyAtoHAsync_v2, always,
      (void* dst, CUarray src, std::size_t offset, std::size_t bytes, CUstream stream),
      (dst, src, offset, bytes, stream))
SUBMITTED(cuMemcpy2DAsync, false, always, (const CUDA_MEMCPY2D_v1* copy, CUstream stream),
          (copy, stream))
TWINS(cuMemcpy2DAsync_v2, to_host(copy), (const CUDA_MEMCPY2D* copy, CUstream stream),
      (copy, stream))
SUBMITTED(cuMemcpy3DAsync, false, always, (const CUDA_MEMCPY3D_v1* copy, CUstream stream),
          (copy, stream))
TWINS(cuMemcpy3DAsync_v2, to_host(copy), (const CUDA_MEMCPY3D* copy, CUstream stream),
      (copy, stream))
TWINS(cuMemcpy3DPeerAsync, to_host(copy), (const CUDA_MEMCPY3D_PEER* copy, CUstream stream),
      (copy, stream))
TWINS(cuMemcpyBatchAsync, any_to_host(dsts, count),
      (CUdeviceptr * dsts, CUdeviceptr* srcs, std::size_t* sizes, std::size_t count,
       CUmemcpyAttributes* attributes, std::size_t* starts, std::size_t attribute_count,
       std::size_t* failed, CUstream stream),
      (dsts, srcs, sizes, count, attributes, starts, attribute_count, failed, stream))
TWINS(cuMemcpyBatchAsync_v2, any_to_host(dsts, count),
      (const CUdeviceptr* dsts, const CUdeviceptr* srcs, const std::size_t* sizes,
       std::size_t count, CUmemcpyAttributes* attributes, std::size_t* starts,
       std::size_t attribute_count, CUstream stream),
      (dsts, srcs, sizes, count, attributes, starts, attribute_count, stream))
TWINS(cuMemcpy3DBatchAsync, always,
      (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, std::size_t* failed,
       unsigned long long flags, CUstream stream),
      (count, operations, failed, flags, stream))
TWINS(cuMemcpy3DBatchAsync_v2, always,
      (std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags,
       CUstream stream),
      (count, operations, flags, stream))
TWINS(cuLaunchHostFunc, always, (CUstream stream, CUhostFn function, void* data),
      (stream, function, data))
TWINS(cuStreamAddCallback, always,
      (CUstream stream, CUstreamCallback callback, void* data, unsigned int flags),
      (stream, callback, data, flags))

#undef TWINS
#undef SUBMITTED
#define BLOCKING(name, per_thread_api, params, args)                                               \
    CUresult hook_##name params {                                                                  \
        return blocking(Entry::name, per_thread_api, [&] { return real.name args; });              \
    }
#define TWINS(name, params, args)                                                                  \
    BLOCKING(name, false, params, args)                                                            \
    BLOCKING(name##_ptds, true, params, args)

TWINS(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, std::size_t bytes), (dst, src, bytes))
TWINS(cuMemcpyDtoH_v2, (void* dst, CUdeviceptr src, std::size_t bytes), (dst, src, bytes))
TWINS(cuMemcpyAtoH_v2, (void* dst, CUarray src, std::size_t offset, std::size_t bytes),
      (dst, src, offset, bytes))
TWINS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy), (copy))
TWINS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* copy), (copy))
TWINS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* copy), (copy))

#undef TWINS
#undef BLOCKING

} // namespace cachealloc::shim
