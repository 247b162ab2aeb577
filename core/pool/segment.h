#pragma once

#include "core/pool/block.h"

#include <atomic>
#include <cstdint>

namespace cachealloc {

class DevicePool;

/// Where the memory behind a segment's addresses comes from.
enum class SegmentKind : std::uint8_t {
    plain,  ///< one driver allocation
    range,  ///< growable: mapped piece by piece, with holes and an unmapped rest
    stitch, ///< memory of the range that is mapped a second time; one block, at its base
};

/// Addresses, wholly covered by a list of blocks in address order (a stitch's one block may be
/// shorter than it).
///
/// Invariant: base and size are multiples of kGranule; no two neighbours could be merged.
struct Segment {
    DeviceAddress base = 0;
    std::uint64_t size = 0;
    DevicePool* pool = nullptr; ///< whose it is
    SegmentKind kind = SegmentKind::plain;
    bool small = false;                ///< if plain: serves requests up to kSmallRequest
    bool unsplit = false;              ///< if plain: made for a request too large to share it
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
