#pragma once

#include "tests/simcuda/runtime/result.h"

namespace simcuda::runtime {

/// Fills the driver's description of a 2D copy. cudaErrorInvalidMemcpyDirection for an unknown
/// kind, cudaErrorInvalidPitchValue for rows wider than their pitch.
Result describe_copy_2d(CUDA_MEMCPY2D& out, void* dst, size_t dst_pitch, const void* src,
                        size_t src_pitch, size_t width, size_t height, cudaMemcpyKind kind);

/// The same for a 3D copy between pitched memory; arrays are not simulated
/// (cudaErrorNotSupported).
Result describe_copy_3d(CUDA_MEMCPY3D& out, const cudaMemcpy3DParms* wanted);

} // namespace simcuda::runtime
