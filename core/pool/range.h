#pragma once

#include "core/pool/memory_source.h"

#include <cstdint>

namespace cachealloc {

/// The addresses that a pool grows into, and what is mapped there: per granule whether it has
/// memory, whether a piece starts there and how many stitches map it a second time.
///
/// Invariant: pieces cover exactly the granules that have memory. Not thread-safe: the heap's lock
/// guards it. Costs three bytes of host memory per granule that ever had memory.
class Range {
  public:
    Range() = default;
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range();

    /// Takes over reserved addresses, whole granules. False if the host has no memory for them.
    bool begin(DeviceAddress base, std::uint64_t bytes);

    DeviceAddress base() const { return base_; }
    std::uint64_t size() const { return bytes_; }
    bool contains(DeviceAddress address) const {
        return address >= base_ && address < base_ + bytes_;
    }

    /// Notes memory in pieces of `piece` bytes each, which divides `bytes`. O(bytes / 2 MiB), as
    /// are all that follow.
    void note_mapped(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece);
    void note_unmapped(DeviceAddress address, std::uint64_t bytes);

    /// Notes that a stitch maps these whole pieces, or no longer does.
    void note_aliased(PieceRun run);
    void note_alias_gone(PieceRun run);

    /// The whole pieces inside [address, address + bytes), all of which has memory; none: 0 bytes.
    PieceRun whole_pieces(DeviceAddress address, std::uint64_t bytes) const;

    /// The pieces from `from` on, where one starts, that hold `bytes` bytes together.
    PieceRun pieces_for(DeviceAddress from, std::uint64_t bytes) const;

    /// The first pieces of `run` that lie together and that no stitch maps; none: 0 bytes.
    PieceRun unaliased(PieceRun run) const;

  private:
    struct Granule {
        bool mapped;
        bool starts;
        std::uint8_t aliases; ///< stitches: fewer than it can count
    };

    Granule& at(DeviceAddress address) { return granules_[(address - base_) / kGranule]; }
    const Granule& at(DeviceAddress address) const {
        return granules_[(address - base_) / kGranule];
    }
    bool boundary(DeviceAddress address) const {
        return address == base_ + bytes_ || !at(address).mapped || at(address).starts;
    }

    DeviceAddress base_ = 0;
    std::uint64_t bytes_ = 0;
    Granule* granules_ = nullptr;
};

} // namespace cachealloc
