#pragma once

#include "core/pool/types.h"

#include <cstdint>

namespace cachealloc {

enum class SourceStatus {
    done,
    out_of_memory, ///< the device has no room; nothing was changed
    failed,        ///< any other error, in SourceResult::native
};

struct SourceResult {
    SourceStatus status = SourceStatus::done;
    DeviceAddress address = 0;
    int native = 0; ///< the platform's own error code
};

/// Where a pool's segments come from. Thread-safe.
class MemorySource {
  public:
    virtual ~MemorySource() = default;

    /// Obtains `bytes` of device memory (a multiple of kGranule). Does not wait for the device.
    virtual SourceResult allocate(std::uint64_t bytes) = 0;

    /// Gives back what allocate() returned. May wait for all work of the context.
    virtual SourceResult release(DeviceAddress address, std::uint64_t bytes) = 0;

    /// Bytes of memory that the device has in all; a request above it cannot succeed.
    virtual std::uint64_t total_bytes() const = 0;
};

} // namespace cachealloc
