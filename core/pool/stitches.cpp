#include "core/pool/stitches.h"

#include "core/pool/host_pages.h"

#include <new>

namespace cachealloc {

Stitches::~Stitches() {
    unmap_host_pages(slots_, kSlots * sizeof(Stitch));
}

Stitch* Stitches::empty_slot() {
    for (std::uint32_t i = 0; i < made_; ++i) {
        if (slots_[i].use == Stitch::Use::empty) return new (&slots_[i]) Stitch();
    }
    if (made_ == kSlots) return nullptr;
    if (slots_ == nullptr) {
        slots_ = static_cast<Stitch*>(map_host_pages(kSlots * sizeof(Stitch)));
        if (slots_ == nullptr) return nullptr;
    }
    return new (&slots_[made_++]) Stitch();
}

Stitch* Stitches::at(DeviceAddress address) {
    for (std::uint32_t i = 0; i < made_; ++i) {
        Stitch& stitch = slots_[i];
        if (stitch.use != Stitch::Use::empty && stitch.base == address) return &stitch;
    }
    return nullptr;
}

} // namespace cachealloc
