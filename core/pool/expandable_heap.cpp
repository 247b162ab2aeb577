// Where blocks come from and go to. What changes the mappings is in expandable_heap_map.cpp.
#include "core/pool/expandable_heap.h"

#include <algorithm>

namespace cachealloc {

bool ExpandableHeap::begin(DeviceAddress base, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    Block* const rest = arena_.make();
    if (rest == nullptr || !range_.begin(base, bytes)) {
        if (rest != nullptr) arena_.recycle(rest);
        return false;
    }
    segment_.base = base;
    segment_.size = bytes;
    segment_.pool = &owner_;
    segment_.kind = SegmentKind::range;
    segment_.first = rest;
    rest->address = base;
    rest->size = bytes;
    rest->segment = &segment_;
    rest->small = false;
    rest->state.store(BlockState::unmapped, std::memory_order_relaxed);
    add_hole(rest);
    begun_.store(true, std::memory_order_release);
    return true;
}

bool ExpandableHeap::is_free(const Block* block, bool small) const {
    return block != nullptr && block->small == small &&
           block->state.load(std::memory_order_relaxed) == BlockState::free;
}

void ExpandableHeap::add_free(Block* block) {
    block->barrier_counts = true;
    block->state.store(BlockState::free, std::memory_order_relaxed);
    free_in_trees_ += block->size;
    if (block->small) {
        small_.insert(block);
    } else {
        large_.insert(block);
        large_by_address_.insert(block);
    }
}

void ExpandableHeap::remove_free(Block* block) {
    block->state.store(BlockState::freeing, std::memory_order_relaxed);
    free_in_trees_ -= block->size;
    if (block->small) {
        small_.erase(block);
    } else {
        large_.erase(block);
        large_by_address_.erase(block);
    }
}

/// Joins `block`, which is in no tree, with its free neighbours of its colour.
Block* ExpandableHeap::merge(Block* block) {
    const auto absorb = [this](Block* lower) {
        lower->stamp = std::max(lower->stamp, lower->next->stamp);
        list_.absorb_next(lower);
    };
    if (is_free(block->next, block->small)) {
        remove_free(block->next);
        absorb(block);
    }
    if (is_free(block->previous, block->small)) {
        block = block->previous;
        remove_free(block);
        absorb(block);
    }
    return block;
}

/// A small free block of a slab's size may span two slabs, whose other parts turn large when no
/// small neighbour is left: so every part of a slab comes back.
void ExpandableHeap::put_back(Block* block) {
    block = merge(block);
    const auto is_small_block = [](const Block* other) { return other != nullptr && other->small; };
    if (block->small && (block->size >= kGranule ||
                         (!is_small_block(block->previous) && !is_small_block(block->next)))) {
        block->small = false;
        block = merge(block);
    }
    add_free(block);
}

void ExpandableHeap::put_locked(Block* block, std::uint64_t now) {
    if (block->segment->kind == SegmentKind::stitch) {
        auto& stitch = static_cast<Stitch&>(*block->segment);
        block->state.store(BlockState::idle, std::memory_order_relaxed);
        stitch.idle_since = now;
        for (std::uint32_t i = 0; i < stitch.held_count; ++i)
            stitch.held[i]->stamp = now;
        let_go(stitch);
        stitch.use = Stitch::Use::idle;
        return;
    }
    block->stamp = now;
    put_back(block);
}

void ExpandableHeap::put(Block* block, std::uint64_t now) {
    const std::lock_guard lock(mutex_);
    put_locked(block, now);
}

void ExpandableHeap::put_chain(Block* chain, std::uint64_t now) {
    if (chain == nullptr) return;
    const std::lock_guard lock(mutex_);
    while (chain != nullptr) {
        Block* const block = chain;
        chain = block->link;
        block->link = nullptr;
        put_locked(block, now);
    }
}

/// Shortens `block`, which is in no tree, to `size` bytes; the rest goes back. Without host memory
/// for that the caller gets all of it.
Block* ExpandableHeap::cut(Block* block, std::uint64_t size) {
    if (block->size == size) return block;
    if (Block* const rest = list_.split(block, size)) {
        ++splits_;
        put_back(rest);
    }
    return block;
}

/// Cuts [address, address + size) out of a free block that holds it; null without host memory.
Block* ExpandableHeap::carve(Block* free, DeviceAddress address, std::uint64_t size) {
    remove_free(free);
    if (address == free->address) return cut(free, size);
    Block* const upper = list_.split(free, address - free->address);
    add_free(free);
    return upper != nullptr ? cut(upper, size) : nullptr;
}

Block* ExpandableHeap::take(const Request& request, Heap::Reach reach) {
    const std::lock_guard lock(mutex_);
    const bool foreign = reach == Heap::Reach::foreign;
    const bool small = is_small(request.size);
    Block* block = nullptr;
    if (small) {
        block = small_.best_fit(request.size);
        if (block != nullptr) return carve(block, block->address, request.size);
        if (reach == Heap::Reach::modest) return nullptr;
        if (Block* const slab = place({kGranule, request.state}); slab != nullptr)
            return cut_slab(slab, request.size);
    } else {
        block = place(request);
        if (block != nullptr) return block;
    }
    if (!foreign) return nullptr;
    block = (small ? large_ : small_).best_fit(request.size);
    if (block == nullptr) return nullptr;
    block = carve(block, block->address, request.size);
    block->small = true;
    return block;
}

/// `slab` is large and in nobody's tree; what is left of it serves small requests.
Block* ExpandableHeap::cut_slab(Block* slab, std::uint64_t size) {
    slab->small = true;
    return cut(slab, size);
}

Block* ExpandableHeap::place(const Request& request) {
    if (Block* const block = recall(request)) return block;
    Block* block = large_.best_fit(request.size);
    if (block != nullptr) {
        block = carve(block, block->address, request.size);
    } else if (request.size > kNeverStitched) {
        Stitch* const stitch = stitches_.smallest(
            request.size, [&](const Stitch& other) { return can_use(other, request.size); });
        if (stitch != nullptr) block = use(*stitch, request.size);
    }
    if (block != nullptr) affinity_.remember(request.state, block->address);
    return block;
}

/// The place of the last such request, if all of it is free.
Block* ExpandableHeap::recall(const Request& request) {
    const DeviceAddress place = affinity_.recall(request.state);
    if (place == 0) return nullptr;
    Block* block = nullptr;
    if (range_.contains(place)) {
        Block* const free = large_by_address_.holding(place, request.size);
        if (free != nullptr) block = carve(free, place, request.size);
    } else if (Stitch* const stitch =
                   request.size > kNeverStitched ? stitches_.at(place) : nullptr) {
        if (stitch->use == Stitch::Use::idle && stitch->size >= request.size &&
            can_use(*stitch, request.size)) {
            block = use(*stitch, request.size);
        }
    }
    if (block != nullptr) affinity_hits_.fetch_add(1, std::memory_order_relaxed);
    return block;
}

/// Whether the pieces behind the first `size` bytes of a stitch are free.
bool ExpandableHeap::can_use(const Stitch& stitch, std::uint64_t size) const {
    for (std::uint32_t i = 0; i < stitch.run_count && size != 0; ++i) {
        const std::uint64_t bytes = std::min(size, stitch.runs[i].bytes);
        if (large_by_address_.holding(stitch.runs[i].address, bytes) == nullptr) return false;
        size -= bytes;
    }
    return true;
}

/// The block of an idle stitch whose pieces are free; null without host memory.
Block* ExpandableHeap::use(Stitch& stitch, std::uint64_t size) {
    if (!hold(stitch, size)) return nullptr;
    stitch.use = Stitch::Use::live;
    stitches_.touch(stitch);
    stitches_used_.fetch_add(1, std::memory_order_relaxed);
    stitch.first->size = size;
    stitch.first->state.store(BlockState::freeing, std::memory_order_relaxed);
    return stitch.first;
}

/// Takes the memory behind the first `size` bytes of a stitch out of the range.
bool ExpandableHeap::hold(Stitch& stitch, std::uint64_t size) {
    stitch.held_count = 0;
    for (std::uint32_t i = 0; i < stitch.run_count && size != 0; ++i) {
        const std::uint64_t bytes = std::min(size, stitch.runs[i].bytes);
        const DeviceAddress address = stitch.runs[i].address;
        Block* const piece = carve(large_by_address_.holding(address, bytes), address, bytes);
        if (piece == nullptr) {
            let_go(stitch);
            return false;
        }
        piece->state.store(BlockState::stitched, std::memory_order_relaxed);
        piece->link = stitch.first;
        stitch.held[stitch.held_count++] = piece;
        size -= bytes;
    }
    return true;
}

void ExpandableHeap::let_go(Stitch& stitch) {
    for (std::uint32_t i = 0; i < stitch.held_count; ++i) {
        Block* const piece = stitch.held[i];
        piece->link = nullptr;
        piece->state.store(BlockState::freeing, std::memory_order_relaxed);
        put_back(piece);
    }
    stitch.held_count = 0;
}

Gauge ExpandableHeap::mapped_bytes() const {
    const std::lock_guard lock(mutex_);
    return mapped_bytes_;
}

Heap::Totals ExpandableHeap::totals() const {
    const std::lock_guard lock(mutex_);
    Heap::Totals totals;
    totals.reserved = mapped();
    totals.reserved_peak = static_cast<std::uint64_t>(mapped_bytes_.peak);
    totals.segments = mapped() != 0 ? 1 : 0;
    totals.free_in_tree = free_in_trees_;
    totals.splits = splits_;
    for (const BestFitTree* tree : {&small_, &large_}) {
        if (const Block* const block = tree->largest())
            totals.largest_free = std::max(totals.largest_free, block->size);
    }
    return totals;
}

/// Whether the application has the block, or may get it only behind what a stream has not done.
bool ExpandableHeap::live(const Block* block) const {
    BlockState state = block->state.load(std::memory_order_relaxed);
    if (state == BlockState::stitched) state = block->link->state.load(std::memory_order_relaxed);
    return state == BlockState::live || state == BlockState::streamed ||
           state == BlockState::unmapped;
}

std::uint64_t ExpandableHeap::wholly_free() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t bytes = 0;
    PieceRun run;
    for (const Block* block = segment_.first; block != nullptr; block = block->next) {
        if (live(block)) {
            bytes += range_.whole_pieces(run.address, run.bytes).bytes;
            run.bytes = 0;
            continue;
        }
        if (run.bytes == 0) run.address = block->address;
        run.bytes += block->size;
    }
    return bytes + range_.whole_pieces(run.address, run.bytes).bytes;
}

} // namespace cachealloc
