#include "core/pool/affinity.h"

#include "core/pool/host_pages.h"

namespace cachealloc {

Affinity::~Affinity() {
    unmap_host_pages(slots_, kSlots * sizeof(Slot));
}

/// The numbers are multiples of 512: odd multipliers spread them, and the top bits are folded down
/// to where the slot is taken from.
std::uint64_t Affinity::key(std::uint64_t size, std::uint64_t live_after,
                            std::uint64_t previous_size) {
    std::uint64_t key = size * 0x9E3779B97F4A7C15ULL ^ live_after * 0xC2B2AE3D27D4EB4FULL ^
                        previous_size * 0x165667B19E3779F9ULL;
    key ^= key >> 29;
    return key | 1;
}

void Affinity::remember(std::uint64_t key, DeviceAddress place) {
    if (slots_ == nullptr) {
        slots_ = static_cast<Slot*>(map_host_pages(kSlots * sizeof(Slot)));
        if (slots_ == nullptr) return;
    }
    slots_[(key >> 1) % kSlots] = {key, place};
}

} // namespace cachealloc
