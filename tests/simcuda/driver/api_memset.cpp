// cuMemset*. As natively, the host does not wait, not even for the synchronous names.
#include "copy.h"

using namespace simcuda;

namespace {

template <std::size_t kElement>
CUresult rows(bool pt, CUstream stream, const char* label, CUdeviceptr p, std::size_t pitch,
              std::uint32_t value, std::size_t width, std::size_t height) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    return fill(s, label, p, pitch, value, kElement, width, height);
}

template <std::size_t kElement>
CUresult line_sync(bool pt, CUdeviceptr p, std::uint32_t value, std::size_t n) {
    return rows<kElement>(pt, nullptr, "cuMemset", p, 0, value, n, 1);
}
template <std::size_t kElement>
CUresult line_async(bool pt, CUdeviceptr p, std::uint32_t value, std::size_t n, CUstream s) {
    return rows<kElement>(pt, s, "cuMemsetAsync", p, 0, value, n, 1);
}
template <std::size_t kElement>
CUresult plane_sync(bool pt, CUdeviceptr p, std::size_t pitch, std::uint32_t value, std::size_t w,
                    std::size_t h) {
    return rows<kElement>(pt, nullptr, "cuMemset2D", p, pitch, value, w, h);
}
template <std::size_t kElement>
CUresult plane_async(bool pt, CUdeviceptr p, std::size_t pitch, std::uint32_t value, std::size_t w,
                     std::size_t h, CUstream s) {
    return rows<kElement>(pt, s, "cuMemset2DAsync", p, pitch, value, w, h);
}

} // namespace

SIM_TWINS(cuMemsetD8_v2, cuMemsetD8_v2_ptds, line_sync<1>,
          (CUdeviceptr p, unsigned char v, size_t n), p, v, n)
SIM_TWINS(cuMemsetD16_v2, cuMemsetD16_v2_ptds, line_sync<2>,
          (CUdeviceptr p, unsigned short v, size_t n), p, v, n)
SIM_TWINS(cuMemsetD32_v2, cuMemsetD32_v2_ptds, line_sync<4>,
          (CUdeviceptr p, unsigned int v, size_t n), p, v, n)
SIM_TWINS(cuMemsetD8Async, cuMemsetD8Async_ptsz, line_async<1>,
          (CUdeviceptr p, unsigned char v, size_t n, CUstream s), p, v, n, s)
SIM_TWINS(cuMemsetD16Async, cuMemsetD16Async_ptsz, line_async<2>,
          (CUdeviceptr p, unsigned short v, size_t n, CUstream s), p, v, n, s)
SIM_TWINS(cuMemsetD32Async, cuMemsetD32Async_ptsz, line_async<4>,
          (CUdeviceptr p, unsigned int v, size_t n, CUstream s), p, v, n, s)
SIM_TWINS(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, plane_sync<1>,
          (CUdeviceptr p, size_t pitch, unsigned char v, size_t w, size_t h), p, pitch, v, w, h)
SIM_TWINS(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, plane_sync<2>,
          (CUdeviceptr p, size_t pitch, unsigned short v, size_t w, size_t h), p, pitch, v, w, h)
SIM_TWINS(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, plane_sync<4>,
          (CUdeviceptr p, size_t pitch, unsigned int v, size_t w, size_t h), p, pitch, v, w, h)
SIM_TWINS(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz, plane_async<1>,
          (CUdeviceptr p, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s), p, pitch,
          v, w, h, s)
SIM_TWINS(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz, plane_async<2>,
          (CUdeviceptr p, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s), p, pitch,
          v, w, h, s)
SIM_TWINS(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz, plane_async<4>,
          (CUdeviceptr p, size_t pitch, unsigned int v, size_t w, size_t h, CUstream s), p, pitch,
          v, w, h, s)
