#include "tests/simcuda/runtime/copy_params.h"

#include "tests/simcuda/runtime/pointers.h"

namespace simcuda::runtime {
namespace {

/// The memory types of both ends; false for an unknown kind.
bool memory_types(cudaMemcpyKind kind, CUmemorytype& src, CUmemorytype& dst) {
    switch (kind) {
    case cudaMemcpyHostToHost:
        src = dst = CU_MEMORYTYPE_HOST;
        return true;
    case cudaMemcpyHostToDevice:
        src = CU_MEMORYTYPE_HOST;
        dst = CU_MEMORYTYPE_DEVICE;
        return true;
    case cudaMemcpyDeviceToHost:
        src = CU_MEMORYTYPE_DEVICE;
        dst = CU_MEMORYTYPE_HOST;
        return true;
    case cudaMemcpyDeviceToDevice:
        src = dst = CU_MEMORYTYPE_DEVICE;
        return true;
    case cudaMemcpyDefault:
        src = dst = CU_MEMORYTYPE_UNIFIED;
        return true;
    }
    return false;
}

/// Puts both addresses where their memory types say; the fields have one name in 2D and 3D.
template <typename Params>
Result set_ends(Params& out, void* dst, const void* src, cudaMemcpyKind kind) {
    if (!memory_types(kind, out.srcMemoryType, out.dstMemoryType)) {
        return cudaErrorInvalidMemcpyDirection;
    }
    if (out.srcMemoryType == CU_MEMORYTYPE_HOST) {
        out.srcHost = src;
    } else {
        out.srcDevice = device(src);
    }
    if (out.dstMemoryType == CU_MEMORYTYPE_HOST) {
        out.dstHost = dst;
    } else {
        out.dstDevice = device(dst);
    }
    return cudaSuccess;
}

} // namespace

Result describe_copy_2d(CUDA_MEMCPY2D& out, void* dst, size_t dst_pitch, const void* src,
                        size_t src_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    if (width > dst_pitch || width > src_pitch) {
        return cudaErrorInvalidPitchValue;
    }
    out.srcPitch = src_pitch;
    out.dstPitch = dst_pitch;
    out.WidthInBytes = width;
    out.Height = height;
    return set_ends(out, dst, src, kind);
}

Result describe_copy_3d(CUDA_MEMCPY3D& out, const cudaMemcpy3DParms* wanted) {
    if (!wanted) {
        return cudaErrorInvalidValue;
    }
    if (wanted->srcArray || wanted->dstArray) {
        return cudaErrorNotSupported;
    }
    out.srcXInBytes = wanted->srcPos.x;
    out.srcY = wanted->srcPos.y;
    out.srcZ = wanted->srcPos.z;
    out.srcPitch = wanted->srcPtr.pitch;
    out.srcHeight = wanted->srcPtr.ysize;
    out.dstXInBytes = wanted->dstPos.x;
    out.dstY = wanted->dstPos.y;
    out.dstZ = wanted->dstPos.z;
    out.dstPitch = wanted->dstPtr.pitch;
    out.dstHeight = wanted->dstPtr.ysize;
    out.WidthInBytes = wanted->extent.width;
    out.Height = wanted->extent.height;
    out.Depth = wanted->extent.depth;
    return set_ends(out, wanted->dstPtr.ptr, wanted->srcPtr.ptr, wanted->kind);
}

} // namespace simcuda::runtime
