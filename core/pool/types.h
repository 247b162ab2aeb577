#pragma once

#include <cstddef>
#include <cstdint>

namespace cachealloc {

/// An address on the device. 0 is no address.
using DeviceAddress = std::uint64_t;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

/// Every block starts at a multiple of this and has a multiple of it as its size. Natively
/// allocations are aligned to at least 256 bytes (CUDA C++ Programming Guide); 512 is what
/// PyTorch's allocator rounds to.
constexpr std::uint64_t kBlockAlignment = 512;

/// Physical granularity of device memory (measured on an H200 with cuMemGetAllocationGranularity).
/// Segments start and end on it.
constexpr std::uint64_t kGranule = 2 * kMiB;

/// No device has that much; larger requests are the driver's to refuse (and would overflow
/// rounding).
constexpr std::uint64_t kLargestRequest = std::uint64_t{1} << 50;

/// Requests up to this size share segments of their own, so that a small long-lived block cannot
/// pin a large segment.
constexpr std::uint64_t kSmallRequest = kMiB;

} // namespace cachealloc
