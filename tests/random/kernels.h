// The two kernels of random programs. They run as host twins, on the simulated CUDA only.
#pragma once

#include "tests/random/calls.h"

#include <cstddef>
#include <cstdint>

namespace random_programs {

/// Kernels look at this many bytes of a block; to the race oracle they use all of it.
constexpr std::size_t kHead = 256;

/// Loaded once a process, into the current context. False if that failed.
bool load_kernels();

/// After `ns`, writes `value` to the head of `to`. `early`: it may start before the kernel in
/// front of it on the stream has ended.
CUresult launch_fill(const Calls& calls, CUstream stream, void* to, std::size_t bytes,
                     unsigned char value, std::uint64_t ns, bool early = false);

/// After `ns`, copies the head of `from`, as far as both go.
CUresult launch_copy(const Calls& calls, CUstream stream, void* to, std::size_t to_bytes,
                     const void* from, std::size_t from_bytes, std::uint64_t ns);

} // namespace random_programs
