#include "core/pool/address_map.h"

#include "core/pool/host_pages.h"

namespace cachealloc {

/// Tables live for ever, so they are cut from large pieces. All-zero bytes are a valid empty table.
void* AddressMap::carve(std::size_t bytes) {
    constexpr std::size_t kPiece = 256 * kKiB;
    if (spare_bytes_ < bytes) {
        auto* const piece = static_cast<std::byte*>(map_host_pages(kPiece));
        if (piece == nullptr) return nullptr;
        spare_ = piece;
        spare_bytes_ = kPiece;
    }
    void* const result = spare_;
    spare_ += bytes;
    spare_bytes_ -= bytes;
    return result;
}

AddressMap::Granule* AddressMap::make_granule(std::uint64_t number) {
    std::atomic<Second*>& second_slot = first_[number / kSecond];
    Second* second = second_slot.load(std::memory_order_acquire);
    if (second == nullptr) {
        second = static_cast<Second*>(map_host_pages(sizeof(Second)));
        if (second == nullptr) return nullptr;
        second_slot.store(second, std::memory_order_release);
    }
    std::atomic<Granule*>& slot = second->granule[number % kSecond];
    Granule* granule = slot.load(std::memory_order_acquire);
    if (granule == nullptr) {
        granule = static_cast<Granule*>(carve(sizeof(Granule)));
        slot.store(granule, std::memory_order_release);
    }
    return granule;
}

bool AddressMap::insert(Segment& segment, DeviceAddress address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t base = address / kGranule;
    const std::uint64_t count = bytes / kGranule;
    if (base + count > kFirst * kSecond) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
        if (make_granule(base + i) == nullptr) return false;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
        granule_of((base + i) * kGranule)->segment.store(&segment, std::memory_order_release);
    }
    return true;
}

void AddressMap::hide(Segment& segment, DeviceAddress address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    for (DeviceAddress at = address; at < address + bytes; at += kGranule) {
        if (Granule* const granule = granule_of(at)) {
            Segment* expected = &segment;
            granule->segment.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel);
        }
    }
}

bool AddressMap::set_start(Block* block) {
    std::atomic<Starts*>& slot =
        granule_of(block->address)->starts[block->address % kGranule / kTableBytes];
    Starts* starts = slot.load(std::memory_order_acquire);
    if (starts == nullptr) {
        const std::lock_guard lock(mutex_);
        starts = static_cast<Starts*>(carve(sizeof(Starts)));
        if (starts == nullptr) return false;
        slot.store(starts, std::memory_order_release);
    }
    starts->block[block->address % kTableBytes / kBlockAlignment].store(block,
                                                                        std::memory_order_release);
    return true;
}

void AddressMap::clear_start(Block* block) {
    const DeviceAddress address = block->address;
    Granule* const granule = granule_of(address);
    if (granule == nullptr) return; // nothing has ever been there
    Starts* const starts =
        granule->starts[address % kGranule / kTableBytes].load(std::memory_order_acquire);
    if (starts == nullptr) return;
    Block* expected = block;
    starts->block[address % kTableBytes / kBlockAlignment].compare_exchange_strong(
        expected, nullptr, std::memory_order_acq_rel);
}

Block* AddressMap::find_containing(DeviceAddress address) const {
    const Segment* const segment = segment_of(address);
    if (segment == nullptr) return nullptr;
    DeviceAddress at = address / kBlockAlignment * kBlockAlignment;
    for (;;) {
        const Starts* const starts =
            granule_of(at)->starts[at % kGranule / kTableBytes].load(std::memory_order_acquire);
        if (starts == nullptr) {
            at = at / kTableBytes * kTableBytes; // its first slot: nothing starts in this table
        } else if (Block* const block = starts->block[at % kTableBytes / kBlockAlignment].load(
                       std::memory_order_acquire)) {
            return block;
        }
        if (at <= segment->base) return nullptr;
        at -= kBlockAlignment;
    }
}

} // namespace cachealloc
