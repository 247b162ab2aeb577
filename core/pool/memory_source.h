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

/// Memory of a range that lies together: whole pieces as map() made them.
struct PieceRun {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    DeviceAddress end() const { return address + bytes; }
};

/// Where a pool's memory comes from: segments as single driver allocations, or addresses that are
/// reserved first and given memory piece by piece. Thread-safe; none may throw.
///
/// Invariant: a piece is created, mapped and given back whole (a driver maps a handle only from its
/// start and unmaps only whole mappings, measured on an H200).
class MemorySource {
  public:
    virtual ~MemorySource() = default;

    /// Obtains `bytes` of device memory (a multiple of kGranule). Does not wait for the device.
    virtual SourceResult allocate(std::uint64_t bytes) = 0;

    /// Gives back what allocate() returned. May wait for all work of the context.
    virtual SourceResult release(DeviceAddress address, std::uint64_t bytes) = 0;

    /// Bytes of memory that the device has in all; a request above it cannot succeed.
    virtual std::uint64_t total_bytes() const = 0;

    /// Bytes of that memory that the process holds, with what it got elsewhere, as far as known;
    /// 0 if nothing is. May take a millisecond.
    virtual std::uint64_t process_bytes() { return 0; }

    // A source that has no growable memory leaves these as they are: they fail.

    /// Reserves addresses (a multiple of kGranule, so aligned) without memory. Returns done, or
    /// failed where growable memory cannot be had at all.
    virtual SourceResult reserve(std::uint64_t /*bytes*/) { return {SourceStatus::failed, 0, 0}; }

    /// Gives back what reserve() returned, with nothing mapped in it.
    virtual void unreserve(DeviceAddress /*address*/, std::uint64_t /*bytes*/) {}

    /// Creates memory in pieces of `piece` bytes each (which divides `bytes`) and maps them at
    /// `address`, readable and writable like any allocation of the device. All or nothing. Does
    /// not wait for the device. Returns done, out_of_memory or failed.
    virtual SourceResult map(DeviceAddress /*address*/, std::uint64_t /*bytes*/,
                             std::uint64_t /*piece*/) {
        return {SourceStatus::failed, 0, 0};
    }

    /// Unmaps whole pieces and gives their memory back to the device. The caller knows that
    /// nothing submitted so far uses them (the driver does not wait) and that no alias() of them is
    /// left. Returns done; else everything is mapped as before.
    virtual SourceResult unmap(DeviceAddress /*address*/, std::uint64_t /*bytes*/) {
        return {SourceStatus::failed, 0, 0};
    }

    /// Maps the memory of `count` runs of whole pieces a second time, one behind the other, at
    /// addresses of its own. All or nothing. Does not wait for the device. Returns done with the
    /// address, out_of_memory (no addresses left) or failed.
    virtual SourceResult alias(const PieceRun* /*runs*/, std::uint32_t /*count*/) {
        return {SourceStatus::failed, 0, 0};
    }

    /// Ends the second mapping of `bytes` at `address` as alias() made it; under the same condition
    /// as unmap(). Returns done; else it is as before.
    virtual SourceResult drop_alias(DeviceAddress /*address*/, std::uint64_t /*bytes*/) {
        return {SourceStatus::failed, 0, 0};
    }
};

} // namespace cachealloc
