// cuMemcpy* of linear memory.
#include "copy.h"

using namespace simcuda;

namespace {

std::uintptr_t address(const void* p) {
    return reinterpret_cast<std::uintptr_t>(p);
}

CUresult linear(bool per_thread, CUstream stream, const char* label, std::uintptr_t dst,
                std::uintptr_t src, std::size_t n, Side to, Side from, bool wait) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, per_thread, &s));
    return copy(s, label, {{dst, src, n}}, to, from, wait);
}

// --- Synchronous ones: on the legacy stream or the thread's. Between device memory nobody waits.

CUresult any_sync(bool pt, CUdeviceptr dst, CUdeviceptr src, std::size_t n) {
    const auto a = World::get().map.find(dst);
    const auto b = World::get().map.find(src);
    const bool both_device = a != nullptr && b != nullptr && !a->on_host() && !b->on_host();
    return linear(pt, nullptr, "cuMemcpy", dst, src, n, Side::any, Side::any, !both_device);
}
CUresult to_device(bool pt, CUdeviceptr dst, const void* src, std::size_t n) {
    return linear(pt, nullptr, "cuMemcpyHtoD", dst, address(src), n, Side::device, Side::host,
                  true);
}
CUresult to_host(bool pt, void* dst, CUdeviceptr src, std::size_t n) {
    return linear(pt, nullptr, "cuMemcpyDtoH", address(dst), src, n, Side::host, Side::device,
                  true);
}
CUresult inside(bool pt, CUdeviceptr dst, CUdeviceptr src, std::size_t n) {
    return linear(pt, nullptr, "cuMemcpyDtoD", dst, src, n, Side::device, Side::device, false);
}
CUresult peer(bool pt, CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, std::size_t n) {
    return linear(pt, nullptr, "cuMemcpyPeer", dst, src, n, Side::device, Side::device, false);
}

// --- Asynchronous ones.

CUresult any_async(bool pt, CUdeviceptr dst, CUdeviceptr src, std::size_t n, CUstream s) {
    return linear(pt, s, "cuMemcpyAsync", dst, src, n, Side::any, Side::any, false);
}
CUresult to_device_async(bool pt, CUdeviceptr dst, const void* src, std::size_t n, CUstream s) {
    return linear(pt, s, "cuMemcpyHtoDAsync", dst, address(src), n, Side::device, Side::host,
                  false);
}
CUresult to_host_async(bool pt, void* dst, CUdeviceptr src, std::size_t n, CUstream s) {
    return linear(pt, s, "cuMemcpyDtoHAsync", address(dst), src, n, Side::host, Side::device,
                  false);
}
CUresult inside_async(bool pt, CUdeviceptr dst, CUdeviceptr src, std::size_t n, CUstream s) {
    return linear(pt, s, "cuMemcpyDtoDAsync", dst, src, n, Side::device, Side::device, false);
}
CUresult peer_async(bool pt, CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, std::size_t n,
                    CUstream s) {
    return linear(pt, s, "cuMemcpyPeerAsync", dst, src, n, Side::device, Side::device, false);
}

// A batch: in the order of the stream as a whole, its copies in no order; here one after the other.
// The legacy stream and captures are refused.
CUresult batch_async(bool pt, const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes,
                     size_t count, CUmemcpyAttributes* attributes, size_t* starts,
                     size_t attribute_count, CUstream stream) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 ||
        attributes == nullptr || starts == nullptr || attribute_count == 0 ||
        attribute_count > count || starts[0] != 0 || s->kind == StreamKind::legacy ||
        s->capture != nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
        SIM_TRY(copy(s, "cuMemcpyBatchAsync", {{dsts[i], srcs[i], sizes[i]}}, Side::any, Side::any,
                     false));
    }
    return CUDA_SUCCESS;
}

// --- Two and three dimensions.

struct End {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
    std::size_t x, y, z, pitch, height;
};

CUresult resolve_end(const End& e, std::uintptr_t* base, Side* side) {
    switch (e.type) {
    case CU_MEMORYTYPE_HOST:
        *base = address(e.host);
        *side = Side::host;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
        *base = e.device;
        *side = Side::device;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
        *base = e.device;
        *side = Side::any;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; // arrays are not simulated
    }
}

CUresult boxes(const StreamPtr& s, const char* label, const End& to, const End& from,
               std::size_t width, std::size_t rows, std::size_t slices, bool wait,
               const CUDA_MEMCPY3D* box) {
    std::uintptr_t dst = 0;
    std::uintptr_t src = 0;
    Side to_side{};
    Side from_side{};
    SIM_TRY(resolve_end(to, &dst, &to_side));
    SIM_TRY(resolve_end(from, &src, &from_side));
    const auto at = [](const End& e, std::uintptr_t base, std::size_t row, std::size_t slice,
                       std::size_t w) {
        const std::size_t pitch = e.pitch == 0 ? w : e.pitch;
        return base + ((slice + e.z) * e.height + row + e.y) * pitch + e.x;
    };
    std::vector<Piece> pieces;
    for (std::size_t slice = 0; slice < slices; ++slice) {
        for (std::size_t row = 0; row < rows; ++row) {
            pieces.push_back(
                {at(to, dst, row, slice, width), at(from, src, row, slice, width), width});
        }
    }
    const bool both_device = to_side == Side::device && from_side == Side::device;
    return copy(s, label, pieces, to_side, from_side, wait && !both_device, box);
}

CUresult plane(bool pt, const CUDA_MEMCPY2D* c, CUstream s, const char* label, bool wait) {
    if (c == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    StreamPtr stream;
    SIM_TRY(stream_of(s, pt, &stream));
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = c->srcMemoryType;
    box.srcHost = c->srcHost;
    box.srcDevice = c->srcDevice;
    box.srcXInBytes = c->srcXInBytes;
    box.srcY = c->srcY;
    box.srcPitch = c->srcPitch;
    box.dstMemoryType = c->dstMemoryType;
    box.dstHost = c->dstHost;
    box.dstDevice = c->dstDevice;
    box.dstXInBytes = c->dstXInBytes;
    box.dstY = c->dstY;
    box.dstPitch = c->dstPitch;
    box.WidthInBytes = c->WidthInBytes;
    box.Height = c->Height;
    box.Depth = 1;
    return copy_volume(stream, box, label, wait);
}
CUresult plane_sync(bool pt, const CUDA_MEMCPY2D* c) {
    return plane(pt, c, nullptr, "cuMemcpy2D", true);
}
CUresult plane_async(bool pt, const CUDA_MEMCPY2D* c, CUstream s) {
    return plane(pt, c, s, "cuMemcpy2DAsync", false);
}

CUresult volume(bool pt, const CUDA_MEMCPY3D* c, CUstream s, const char* label, bool wait) {
    if (c == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    StreamPtr stream;
    SIM_TRY(stream_of(s, pt, &stream));
    return copy_volume(stream, *c, label, wait);
}
CUresult volume_sync(bool pt, const CUDA_MEMCPY3D* c) {
    return volume(pt, c, nullptr, "cuMemcpy3D", true);
}
CUresult volume_async(bool pt, const CUDA_MEMCPY3D* c, CUstream s) {
    return volume(pt, c, s, "cuMemcpy3DAsync", false);
}

} // namespace

CUresult simcuda::copy_volume(const StreamPtr& s, const CUDA_MEMCPY3D& c, const char* label,
                              bool wait) {
    return boxes(s, label,
                 {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY, c.dstZ,
                  c.dstPitch, c.dstHeight},
                 {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY, c.srcZ,
                  c.srcPitch, c.srcHeight},
                 c.WidthInBytes, c.Height, c.Depth, wait, &c);
}

SIM_TWINS(cuMemcpy, cuMemcpy_ptds, any_sync, (CUdeviceptr d, CUdeviceptr s, size_t n), d, s, n)
SIM_TWINS(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, to_device,
          (CUdeviceptr d, const void* s, size_t n), d, s, n)
SIM_TWINS(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, to_host, (void* d, CUdeviceptr s, size_t n), d, s,
          n)
SIM_TWINS(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, inside, (CUdeviceptr d, CUdeviceptr s, size_t n),
          d, s, n)
SIM_TWINS(cuMemcpyPeer, cuMemcpyPeer_ptds, peer,
          (CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n), d, dc, s, sc, n)
SIM_TWINS(cuMemcpyAsync, cuMemcpyAsync_ptsz, any_async,
          (CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st), d, s, n, st)
SIM_TWINS(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz, to_device_async,
          (CUdeviceptr d, const void* s, size_t n, CUstream st), d, s, n, st)
SIM_TWINS(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz, to_host_async,
          (void* d, CUdeviceptr s, size_t n, CUstream st), d, s, n, st)
SIM_TWINS(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, inside_async,
          (CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st), d, s, n, st)
SIM_TWINS(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz, peer_async,
          (CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream st), d, dc,
          s, sc, n, st)
SIM_TWINS(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz, batch_async,
          (CUdeviceptr * d, CUdeviceptr* s, size_t* n, size_t count, CUmemcpyAttributes* a,
           size_t* starts, size_t attributes, CUstream st),
          d, s, n, count, a, starts, attributes, st)
SIM_TWINS(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, plane_sync, (const CUDA_MEMCPY2D* c), c)
SIM_TWINS(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, plane_sync, (const CUDA_MEMCPY2D* c),
          c)
SIM_TWINS(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, plane_async,
          (const CUDA_MEMCPY2D* c, CUstream s), c, s)
SIM_TWINS(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, volume_sync, (const CUDA_MEMCPY3D* c), c)
SIM_TWINS(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, volume_async,
          (const CUDA_MEMCPY3D* c, CUstream s), c, s)
