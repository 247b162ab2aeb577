#include "shim/pooled.h"

#include "shim/driver.h"

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

CUresult bad_pointer() {
    const CUresult trouble = real.cuMemFree_v2(0);
    return trouble != CUDA_SUCCESS ? trouble : CUDA_ERROR_INVALID_VALUE;
}

} // namespace cachealloc::shim
