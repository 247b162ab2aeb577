#pragma once

#include "core/pool/block.h"

#include <atomic>
#include <cstdint>

namespace cachealloc {

class DevicePool;

/// One driver allocation, wholly covered by a list of blocks in address order.
///
/// Invariant: base and size are multiples of kGranule; the blocks' sizes add up to size; no two
/// neighbours are both `free`.
struct Segment {
    DeviceAddress base = 0;
    std::uint64_t size = 0;
    DevicePool* pool = nullptr;        ///< whose it is
    bool classic = true;               ///< one allocation of the source, as statistics count
    bool small = false;                ///< serves requests up to kSmallRequest
    bool unsplit = false;              ///< made for a request that is too large to share it
    std::atomic<bool> exported{false}; ///< an IPC handle of it was given out: kept for good
    Block* first = nullptr;
    Segment* previous = nullptr; ///< list of all segments of the heap
    Segment* next = nullptr;
    Segment* colder = nullptr; ///< list of wholly free segments, by the time they became so
    Segment* warmer = nullptr;
    bool in_cold_list = false;

    DeviceAddress end() const { return base + size; }
    bool contains(DeviceAddress address) const { return address >= base && address < end(); }
};

} // namespace cachealloc
