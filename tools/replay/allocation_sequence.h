// What a program allocated and freed, in order, without where it was placed: what replay policies
// run on.
#pragma once

#include "core/pool/types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cachealloc::tools {

enum class SequenceOp : std::uint8_t {
    allocate,
    release,
    complete, ///< the release of this id, unsettled so far, is fit for reuse
};

struct SequenceEvent {
    std::uint64_t bytes = 0;  ///< as asked for; of a release, those of its allocation
    std::uint32_t id = 0;     ///< below AllocationSequence::ids, never used twice
    std::uint32_t stream = 0; ///< a number below AllocationSequence::streams
    SequenceOp op = SequenceOp::allocate;
    bool settled = true;            ///< release: fit for reuse at once, no `complete` follows
    bool ordered_by_stream = false; ///< by a stream-ordered call
};

/// Memory as a recording says the pool got it from the driver.
struct RecordedSegment {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
};

/// What only a recording knows.
struct RecordedRun {
    std::string options; ///< in full, as CACHEALLOC_CONF would say them
    std::uint64_t peak_reserved = 0;
    std::uint64_t peak_requested = 0; ///< of the same pool
    std::uint8_t pool = 0;
    std::uint8_t device = 0;
    std::uint64_t device_bytes = 0;    ///< memory that the device has; 0: not known
    std::uint32_t pools = 1;           ///< that handed out memory
    bool whole = true;                 ///< nothing is forgotten or lost
    std::optional<std::uint8_t> level; ///< of order, as OrderLevel; the most careful one there was
    bool host_waited = false; ///< most frees that settled at once did so by a wait of the host
    bool exported = false;    ///< memory was shared with other processes
    std::vector<RecordedSegment> segments; ///< single allocations, in the order of their calls
};

/// Invariant: an id is allocated before it is released, each at most once; `complete` comes only
/// for released ids whose release was not settled.
struct AllocationSequence {
    std::string name; ///< of the file
    std::vector<SequenceEvent> events;
    std::uint32_t ids = 0; ///< allocations
    std::uint32_t streams = 1;
    std::uint32_t threads = 1;
    std::uint64_t peak_requested = 0; ///< of live bytes
    std::optional<RecordedRun> recorded;

    /// Appends an allocation and gives its id.
    std::uint32_t allocate(std::uint64_t bytes, std::uint32_t stream = 0, bool by_stream = false);
    /// `id` must be live.
    void release(std::uint32_t id, std::uint32_t stream = 0, bool settled = true,
                 bool by_stream = false);
    /// `id` must have been released unsettled, `by_stream` or not.
    void complete(std::uint32_t id, bool by_stream = false);

  private:
    std::vector<std::uint64_t> bytes_; ///< by id
    std::uint64_t live_ = 0;
};

/// Bytes that every policy rounds a request up to at least: a multiple of kBlockAlignment.
constexpr std::uint64_t aligned_bytes(std::uint64_t bytes) {
    return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

} // namespace cachealloc::tools
