#include "shim/pooled.h"

namespace cachealloc::shim {

Owned owner_of(const Process& process, CUdeviceptr pointer) {
    Owned owned;
    owned.segment = process.map.segment_of(pointer);
    if (owned.segment == nullptr) return owned;
    Block* const block = process.map.find_containing(pointer);
    if (block != nullptr && block->state.load(std::memory_order_acquire) == BlockState::live &&
        pointer - block->address < block->requested.load(std::memory_order_relaxed)) {
        owned.live = block;
    }
    return owned;
}

} // namespace cachealloc::shim
