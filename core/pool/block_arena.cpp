#include "core/pool/block_arena.h"

#include "core/pool/host_pages.h"

#include <new>

namespace cachealloc {

bool BlockArena::grow() {
    if (chunk_count_ == kChunks) return false;
    void* const memory = map_host_pages(kChunkBlocks * sizeof(Block));
    if (memory == nullptr) return false;
    Block* const chunk = static_cast<Block*>(memory);
    const std::uint32_t base = chunk_count_ * kChunkBlocks;
    for (std::uint32_t i = kChunkBlocks; i-- > 0;) {
        Block* const block = new (chunk + i) Block();
        block->index = base + i;
        if (block->index == 0) continue; // index 0 means "none"
        block->link = free_;
        free_ = block;
    }
    chunks_[chunk_count_++].store(chunk, std::memory_order_release);
    return true;
}

Block* BlockArena::make() {
    const std::lock_guard lock(mutex_);
    if (free_ == nullptr && !grow()) return nullptr;
    Block* const block = free_;
    free_ = block->link;
    block->link = nullptr;
    block->previous = block->next = nullptr;
    block->barrier_counts = true;
    block->stamp = 0;
    return block;
}

void BlockArena::recycle(Block* block) {
    block->state.store(BlockState::unused, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    block->link = free_;
    free_ = block;
}

} // namespace cachealloc
