#include "core/pool/limbo.h"

#include "core/pool/host_pages.h"

#include <bit>

namespace cachealloc {

void Limbo::push(Block* block) {
    block->link = nullptr;
    block->state.store(BlockState::limbo, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[block->bin];
    (queue.tail != nullptr ? queue.tail->link : queue.head) = block;
    queue.tail = block;
    used_[block->bin / 64] |= std::uint64_t{1} << (block->bin % 64);
    count_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(block->size, std::memory_order_relaxed);
    queue.bytes += block->size;
}

Block* Limbo::pop_locked(std::uint32_t bin) {
    Queue& queue = queues_[bin];
    Block* const block = queue.head;
    queue.head = block->link;
    if (queue.head == nullptr) {
        queue.tail = nullptr;
        used_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
    }
    block->link = nullptr;
    count_.fetch_sub(1, std::memory_order_relaxed);
    bytes_.fetch_sub(block->size, std::memory_order_relaxed);
    queue.bytes -= block->size;
    return block;
}

void Limbo::clear() {
    const std::lock_guard lock(mutex_);
    zero_host_pages(queues_.data(), sizeof queues_);
    used_.fill(0);
    count_.store(0, std::memory_order_relaxed);
    bytes_.store(0, std::memory_order_relaxed);
}

std::uint64_t Limbo::bytes(std::uint32_t bin) const {
    const std::lock_guard lock(mutex_);
    return queues_[bin].bytes;
}

Limbo::Head Limbo::head(std::uint32_t bin) const {
    const std::lock_guard lock(mutex_);
    Head oldest;
    const auto look = [&](const Block* block) {
        if (block == nullptr || (oldest.found && block->stamp >= oldest.stamp)) return;
        oldest = {true, block->stamp};
    };
    if (bin != kAny) {
        look(queues_[bin].head);
        return oldest;
    }
    for (std::uint32_t word = 0; word < used_.size(); ++word) {
        for (std::uint64_t bits = used_[word]; bits != 0; bits &= bits - 1) {
            look(queues_[word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits))].head);
        }
    }
    return oldest;
}

Limbo::Head Limbo::youngest() const {
    const std::lock_guard lock(mutex_);
    Head youngest;
    for (const Queue& queue : queues_) {
        if (queue.tail != nullptr && (!youngest.found || queue.tail->stamp > youngest.stamp)) {
            youngest = {true, queue.tail->stamp};
        }
    }
    return youngest;
}

} // namespace cachealloc
