#include "core/pool/block_list.h"

namespace cachealloc {

Block* BlockList::split(Block* block, std::uint64_t size) {
    Block* const upper = arena_.make();
    if (upper == nullptr) return nullptr;
    upper->address = block->address + size;
    upper->size = block->size - size;
    upper->segment = block->segment;
    upper->small = block->small;
    upper->stamp = block->stamp;
    upper->state.store(BlockState::freeing, std::memory_order_relaxed);
    if (!map_.set_start(upper)) {
        arena_.recycle(upper);
        return nullptr;
    }
    upper->previous = block;
    upper->next = block->next;
    if (block->next != nullptr) block->next->previous = upper;
    block->next = upper;
    block->size = size;
    return upper;
}

void BlockList::absorb_next(Block* block) {
    Block* const gone = block->next;
    map_.clear_start(gone);
    block->size += gone->size;
    block->next = gone->next;
    if (gone->next != nullptr) gone->next->previous = block;
    arena_.recycle(gone);
}

} // namespace cachealloc
