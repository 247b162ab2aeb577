// The two kernels of the ordering cases, behind plain functions so that only one file needs nvcc.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace order {

using Byte = unsigned char;

/// Queues a kernel that, after `ns`, copies `bytes` of `from` to `to`.
cudaError_t read_late(cudaStream_t stream, const Byte* from, Byte* to, std::size_t bytes,
                      std::uint64_t ns);

/// Queues a kernel that, after `ns`, sets `bytes` of `to` to `value`.
cudaError_t fill(cudaStream_t stream, Byte* to, Byte value, std::size_t bytes, std::uint64_t ns);

/// The same at once, as a programmatic dependent launch: it may start before the kernel in front of
/// it on the stream has ended.
cudaError_t fill_early(cudaStream_t stream, Byte* to, Byte value, std::size_t bytes);

} // namespace order
