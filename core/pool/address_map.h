#pragma once

#include "core/pool/segment.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace cachealloc {

/// Finds the block and the segment behind a device address, for all pools of a process.
///
/// Invariant: find() names a block exactly when a block of an inserted, visible segment starts at
/// that address. Readers take no lock and may run beside every writer: tables, once made for an
/// address, are kept for good and serve every later segment there.
///
/// Layout, made lazily: 2^15 first-level entries cover 2^51 bytes of addresses; each holds 2^15
/// granules of 2 MiB; each granule 64 tables of 32 KiB; each table 64 block starts.
class AddressMap {
  public:
    /// Makes a segment visible to readers. Its blocks are added with set_start(). False if the host
    /// has no memory for tables or the address is beyond the map. Takes a lock; O(size / 2 MiB).
    bool insert(Segment& segment) { return insert(segment, segment.base, segment.size); }

    /// The same for a part of its addresses, in whole granules.
    bool insert(Segment& segment, DeviceAddress address, std::uint64_t bytes);

    /// Hides a segment: find() and segment_of() no longer see it. insert() undoes that. Leaves what
    /// another segment has put at these addresses since.
    void hide(Segment& segment) { hide(segment, segment.base, segment.size); }

    /// The same for a part of its addresses, in whole granules.
    void hide(Segment& segment, DeviceAddress address, std::uint64_t bytes);

    /// Notes that `block` starts at its address; false if the host has no memory for the table.
    bool set_start(Block* block);

    /// Notes that `block` starts nowhere any more. What another block has put at that address since
    /// (its memory may have been given back and come again) stays.
    void clear_start(Block* block);

    /// The block that starts at `address`, or null. Lock-free, O(1).
    Block* find(DeviceAddress address) const {
        const Granule* const granule = granule_of(address);
        if (granule == nullptr || address % kBlockAlignment != 0 ||
            granule->segment.load(std::memory_order_acquire) == nullptr) {
            return nullptr;
        }
        const Starts* const starts =
            granule->starts[address % kGranule / kTableBytes].load(std::memory_order_acquire);
        if (starts == nullptr) return nullptr;
        return starts->block[address % kTableBytes / kBlockAlignment].load(
            std::memory_order_acquire);
    }

    /// The segment that contains `address`, or null. Lock-free, O(1).
    Segment* segment_of(DeviceAddress address) const {
        const Granule* const granule = granule_of(address);
        return granule == nullptr ? nullptr : granule->segment.load(std::memory_order_acquire);
    }

    /// The block that contains `address`, or null where it is in no segment. Lock-free; cost grows
    /// with the distance to the block's start (one load per 512 bytes, or per 32 KiB without any
    /// start). Exact for live blocks, a hint for others.
    Block* find_containing(DeviceAddress address) const;

  private:
    static constexpr std::uint64_t kTableBytes = 64 * kBlockAlignment;
    static constexpr std::uint64_t kFirst = 1 << 15;
    static constexpr std::uint64_t kSecond = 1 << 15;

    struct Starts {
        std::array<std::atomic<Block*>, 64> block;
    };
    struct Granule {
        std::atomic<Segment*> segment;
        std::array<std::atomic<Starts*>, kGranule / kTableBytes> starts;
    };
    struct Second {
        std::array<std::atomic<Granule*>, kSecond> granule;
    };

    Granule* granule_of(DeviceAddress address) const {
        const std::uint64_t number = address / kGranule;
        if (number >= kFirst * kSecond) return nullptr;
        const Second* const second = first_[number / kSecond].load(std::memory_order_acquire);
        return second == nullptr
                   ? nullptr
                   : second->granule[number % kSecond].load(std::memory_order_acquire);
    }

    Granule* make_granule(std::uint64_t number);
    void* carve(std::size_t bytes);

    std::mutex mutex_;
    std::byte* spare_ = nullptr; ///< zeroed memory not yet carved into tables
    std::size_t spare_bytes_ = 0;
    std::array<std::atomic<Second*>, kFirst> first_{};
};

} // namespace cachealloc
