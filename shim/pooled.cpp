#include "shim/pooled.h"

#include "shim/driver.h"

#include <sched.h>

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

bool is_growable(Process& process, CUdeviceptr address, std::uint64_t bytes) {
    if (!process.options.expandable_segments) return false;
    bool found = false;
    process.contexts.for_each([&](ContextPool& pool) {
        found = found || pool.source.mapped().reserves(address, bytes != 0 ? bytes : 1);
    });
    return found;
}

CUresult bad_pointer() {
    const CUresult trouble = real.cuMemFree_v2(0);
    return trouble != CUDA_SUCCESS ? trouble : CUDA_ERROR_INVALID_VALUE;
}

CUresult code_of(const PoolResult& result) {
    switch (result.status) {
    case PoolStatus::done:
        return CUDA_SUCCESS;
    case PoolStatus::failed:
        return result.native != 0 ? static_cast<CUresult>(result.native) : CUDA_ERROR_UNKNOWN;
    default:
        return bad_pointer();
    }
}

Block* find_block(Process& state, CUdeviceptr pointer, bool& ours) {
    for (;;) {
        Block* const block = state.map.find(pointer);
        ours = block != nullptr || state.map.segment_of(pointer) != nullptr;
        if (ours || state.contexts_ending.load(std::memory_order_seq_cst) == 0) return block;
        sched_yield();
    }
}

} // namespace cachealloc::shim
