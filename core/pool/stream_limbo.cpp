#include "core/pool/stream_limbo.h"

#include "core/pool/host_pages.h"

#include <bit>

namespace cachealloc {

// Turns go on rising: what was seen before must not be taken for what comes later.
void StreamLimbo::clear() {
    const std::lock_guard lock(mutex_);
    zero_host_pages(lanes_.data(), sizeof lanes_);
    first_.fill(0);
    used_.fill(0);
    lanes_made_ = spare_lane_ = 0;
    count_.store(0, std::memory_order_relaxed);
    bytes_.store(0, std::memory_order_relaxed);
}

std::uint32_t StreamLimbo::find_lane(std::uint32_t bin, std::uint64_t stream) const {
    std::uint32_t lane = first_[bin];
    while (lane != 0 && lanes_[lane].stream != stream)
        lane = lanes_[lane].next;
    return lane;
}

std::uint32_t StreamLimbo::make_lane(std::uint32_t bin, std::uint64_t stream) {
    std::uint32_t index = spare_lane_;
    if (index != 0) {
        spare_lane_ = lanes_[index].next;
    } else {
        index = ++lanes_made_;
    }
    lanes_[index] = {stream, nullptr, nullptr, bin, first_[bin], 0};
    if (first_[bin] != 0) lanes_[first_[bin]].previous = index;
    first_[bin] = index;
    used_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    return index;
}

void StreamLimbo::drop_lane(std::uint32_t index) {
    Lane& lane = lanes_[index];
    (lane.previous != 0 ? lanes_[lane.previous].next : first_[lane.bin]) = lane.next;
    if (lane.next != 0) lanes_[lane.next].previous = lane.previous;
    if (first_[lane.bin] == 0) used_[lane.bin / 64] &= ~(std::uint64_t{1} << (lane.bin % 64));
    lane.next = spare_lane_;
    spare_lane_ = index;
}

void StreamLimbo::push(Block* block, std::uint64_t stream) {
    block->state.store(BlockState::streamed, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    std::uint32_t index = find_lane(block->bin, stream);
    if (index == 0) index = make_lane(block->bin, stream);
    Lane& lane = lanes_[index];
    block->stamp = ++turn_;
    block->link = nullptr;
    block->left = lane.newest;
    (lane.newest != nullptr ? lane.newest->link : lane.oldest) = block;
    lane.newest = block;
    count_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(block->size, std::memory_order_relaxed);
}

void StreamLimbo::remove(std::uint32_t index, Block* block) {
    Lane& lane = lanes_[index];
    (block->left != nullptr ? block->left->link : lane.oldest) = block->link;
    (block->link != nullptr ? block->link->left : lane.newest) = block->left;
    block->link = block->left = nullptr;
    block->state.store(BlockState::freeing, std::memory_order_relaxed);
    count_.fetch_sub(1, std::memory_order_relaxed);
    bytes_.fetch_sub(block->size, std::memory_order_relaxed);
    if (lane.oldest == nullptr) drop_lane(index);
}

Block* StreamLimbo::take_newest(std::uint32_t bin, std::uint64_t stream) {
    if (count() == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const std::uint32_t lane = find_lane(bin, stream);
    if (lane == 0) return nullptr;
    Block* const block = lanes_[lane].newest;
    remove(lane, block);
    return block;
}

void StreamLimbo::look(std::uint32_t bin, std::uint64_t after, Seen& best) const {
    for (std::uint32_t index = first_[bin]; index != 0; index = lanes_[index].next) {
        Block* const block = lanes_[index].oldest;
        if (block->stamp <= after || (best.block != nullptr && block->stamp >= best.turn)) continue;
        best = {block, block->stamp, lanes_[index].stream, block->event, index};
    }
}

StreamLimbo::Seen StreamLimbo::oldest(std::uint32_t bin, std::uint64_t after) const {
    Seen best;
    if (count() == 0) return best;
    const std::lock_guard lock(mutex_);
    if (bin != kAny) {
        look(bin, after, best);
        return best;
    }
    for (std::uint32_t word = 0; word < used_.size(); ++word) {
        for (std::uint64_t bits = used_[word]; bits != 0; bits &= bits - 1) {
            look(word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits)), after, best);
        }
    }
    return best;
}

/// Turns never come back, so a lane that was dropped and made again meanwhile is no danger.
Block* StreamLimbo::take(const Seen& seen) {
    if (seen.block == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    const Lane& lane = lanes_[seen.lane];
    if (lane.oldest != seen.block || lane.oldest->stamp != seen.turn) return nullptr;
    remove(seen.lane, seen.block);
    return seen.block;
}

} // namespace cachealloc
