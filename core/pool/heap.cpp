#include "core/pool/heap.h"

#include "core/pool/host_pages.h"
#include "core/pool/size_rules.h"

#include <algorithm>
#include <new>

namespace cachealloc {

/// Whether a block of `size` bytes cut from `block` would keep a segment much larger than itself
/// from serving a request like those it was made for, or from being given back.
bool Heap::pins(const Block* block, std::uint64_t size) {
    const std::uint64_t whole = block->segment->size;
    if (whole <= kPinnable || whole / kMuchLarger <= size) return false;
    const auto most = [whole](const Block* other) {
        return other != nullptr && other->size >= whole / 2;
    };
    return block->size == whole || most(block->previous) || most(block->next);
}

Block* Heap::best_shared(const BestFitTree& tree, std::uint64_t size, Reach reach) const {
    Block* block = tree.best_fit(size);
    if (reach == Reach::modest) {
        for (int others = kOthers; block != nullptr && pins(block, size); --others)
            block = others != 0 ? tree.next(block) : nullptr;
    }
    return block;
}

/// The best fit wastes least: where it wastes too much, so does every other.
Block* Heap::best_unsplit(std::uint64_t size) const {
    Block* const block = size >= max_split_ ? unsplit_.best_fit(size) : nullptr;
    return block != nullptr && block->size - size < max_waste_ ? block : nullptr;
}

Block* Heap::best_foreign(std::uint64_t size) const {
    Block* const block = (is_small(size) ? large_ : small_).best_fit(size);
    return block != nullptr ? block : unsplit_.best_fit(size);
}

Block* Heap::take(std::uint64_t size, Reach reach) {
    const std::lock_guard lock(mutex_);
    Block* block = nullptr;
    if (reach == Reach::foreign) {
        block = best_foreign(size);
    } else {
        block = best_unsplit(size);
        if (block == nullptr) block = best_shared(is_small(size) ? small_ : large_, size, reach);
    }
    if (block == nullptr) return nullptr;
    remove_free(block);
    return cut(block, size);
}

/// Makes `block`, which is in no tree, the caller's, leaving behind what is worth keeping.
Block* Heap::cut(Block* block, std::uint64_t size) {
    block->state.store(BlockState::freeing, std::memory_order_relaxed);
    const std::uint64_t rest = block->size - size;
    if (rest == 0 || block->segment->unsplit) return block;
    Block* const remainder = list_.split(block, size);
    if (remainder == nullptr) return block;
    ++splits_;
    add_free(remainder);
    return block;
}

void Heap::put(Block* block) {
    const std::lock_guard lock(mutex_);
    put_locked(block);
}

void Heap::put_chain(Block* chain) {
    if (chain == nullptr) return;
    const std::lock_guard lock(mutex_);
    while (chain != nullptr) {
        Block* const block = chain;
        chain = block->link;
        block->link = nullptr;
        put_locked(block);
    }
}

void Heap::put_locked(Block* block) {
    const auto is_free = [](const Block* other) {
        return other != nullptr && other->state.load(std::memory_order_relaxed) == BlockState::free;
    };
    if (is_free(block->next)) {
        remove_free(block->next);
        list_.absorb_next(block);
    }
    if (is_free(block->previous)) {
        block = block->previous;
        remove_free(block);
        list_.absorb_next(block);
    }
    add_free(block);
}

void Heap::add_free(Block* block) {
    block->barrier_counts = true;
    block->state.store(BlockState::free, std::memory_order_relaxed);
    free_in_tree_ += block->size;
    tree(*block->segment).insert(block);
    if (block->size == block->segment->size && !block->segment->exported) {
        link_warmest(block->segment);
    }
}

void Heap::remove_free(Block* block) {
    free_in_tree_ -= block->size;
    tree(*block->segment).erase(block);
    if (block->segment->in_cold_list) unlink_cold(block->segment);
}

Segment* Heap::make_segment() {
    if (spare_segments_ == nullptr) {
        constexpr std::size_t kPiece = 64 * kKiB;
        auto* const memory = static_cast<std::byte*>(map_host_pages(kPiece));
        if (memory == nullptr) return nullptr;
        for (std::size_t at = 0; at + sizeof(Segment) <= kPiece; at += sizeof(Segment)) {
            auto* const segment = new (memory + at) Segment();
            segment->next = spare_segments_;
            spare_segments_ = segment;
        }
    }
    Segment* const segment = spare_segments_;
    spare_segments_ = segment->next;
    return new (segment) Segment();
}

Block* Heap::add_segment(DeviceAddress base, std::uint64_t bytes, bool small, std::uint64_t size) {
    const std::lock_guard lock(mutex_);
    Segment* const segment = make_segment();
    Block* const block = segment != nullptr ? arena_.make() : nullptr;
    if (block == nullptr) {
        if (segment != nullptr) {
            segment->next = spare_segments_;
            spare_segments_ = segment;
        }
        return nullptr;
    }
    segment->base = base;
    segment->size = bytes;
    segment->pool = &owner_;
    segment->small = small;
    segment->unsplit = size >= max_split_;
    segment->first = block;
    block->address = base;
    block->size = bytes;
    block->segment = segment;
    block->state.store(BlockState::freeing, std::memory_order_relaxed);
    if (!map_.insert(*segment) || !map_.set_start(block)) {
        map_.hide(*segment);
        arena_.recycle(block);
        segment->next = spare_segments_;
        spare_segments_ = segment;
        return nullptr;
    }
    link_segment(segment);
    count_segment(*segment, 1);
    return cut(block, size);
}

void Heap::link_segment(Segment* segment) {
    segment->previous = nullptr;
    segment->next = segments_;
    if (segments_ != nullptr) segments_->previous = segment;
    segments_ = segment;
    ++segment_count_;
    const std::uint64_t now = reserved_.load(std::memory_order_relaxed) + segment->size;
    reserved_.store(now, std::memory_order_relaxed);
    reserved_peak_.store(std::max(now, reserved_peak_.load(std::memory_order_relaxed)),
                         std::memory_order_relaxed);
}

void Heap::unlink_segment(Segment* segment) {
    (segment->previous != nullptr ? segment->previous->next : segments_) = segment->next;
    if (segment->next != nullptr) segment->next->previous = segment->previous;
    segment->previous = segment->next = nullptr;
    --segment_count_;
    reserved_.store(reserved_.load(std::memory_order_relaxed) - segment->size,
                    std::memory_order_relaxed);
}

void Heap::link_warmest(Segment* segment) {
    segment->in_cold_list = true;
    releasable_.store(releasable() + segment->size, std::memory_order_relaxed);
    segment->warmer = nullptr;
    segment->colder = warmest_;
    (warmest_ != nullptr ? warmest_->warmer : coldest_) = segment;
    warmest_ = segment;
}

void Heap::unlink_cold(Segment* segment) {
    (segment->colder != nullptr ? segment->colder->warmer : coldest_) = segment->warmer;
    (segment->warmer != nullptr ? segment->warmer->colder : warmest_) = segment->colder;
    segment->colder = segment->warmer = nullptr;
    segment->in_cold_list = false;
    releasable_.store(releasable() - segment->size, std::memory_order_relaxed);
}

template <class Wanted>
Segment* Heap::take_first(Wanted wanted) {
    const std::lock_guard lock(mutex_);
    Segment* segment = coldest_;
    while (segment != nullptr && !wanted(*segment))
        segment = segment->warmer;
    return segment != nullptr ? take_out(segment) : nullptr;
}

Segment* Heap::take_coldest(std::uint64_t at_least) {
    return take_first([&](const Segment& segment) { return segment.size >= at_least; });
}

Segment* Heap::take_coldest_large() {
    return take_first([](const Segment& segment) { return !segment.small; });
}

Segment* Heap::take_covering(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    Segment* best = coldest_;
    for (Segment* at = coldest_; at != nullptr; at = at->warmer) {
        const bool covers = at->size >= bytes;
        const bool better = best->size < bytes ? at->size > best->size : at->size < best->size;
        if (better && (covers || best->size < bytes)) best = at;
    }
    return best != nullptr ? take_out(best) : nullptr;
}

/// `segment` is wholly free.
Segment* Heap::take_out(Segment* segment) {
    remove_free(segment->first);
    segment->first->state.store(BlockState::freeing, std::memory_order_relaxed);
    unlink_segment(segment);
    map_.clear_start(segment->first); // before the driver can hand the address out again
    map_.hide(*segment);
    return segment;
}

void Heap::retire(Segment* segment) {
    const std::lock_guard lock(mutex_);
    count_segment(*segment, -1);
    arena_.recycle(segment->first);
    segment->next = spare_segments_;
    spare_segments_ = segment;
}

void Heap::restore(Segment* segment) {
    const std::lock_guard lock(mutex_);
    map_.insert(*segment); // its tables exist: neither call can fail
    map_.set_start(segment->first);
    link_segment(segment);
    add_free(segment->first);
}

void Heap::hide_all() {
    const std::lock_guard lock(mutex_);
    for (Segment* at = segments_; at != nullptr; at = at->next)
        map_.hide(*at);
}

void Heap::show_all() {
    const std::lock_guard lock(mutex_);
    for (Segment* at = segments_; at != nullptr; at = at->next)
        map_.insert(*at);
}

void Heap::forget_all() {
    const std::lock_guard lock(mutex_);
    while (Segment* const segment = segments_) {
        segments_ = segment->next;
        count_segment(*segment, -1);
        for (Block* block = segment->first; block != nullptr;) {
            Block* const gone = block;
            block = block->next;
            map_.clear_start(gone);
            arena_.recycle(gone);
        }
        segment->next = spare_segments_;
        spare_segments_ = segment;
    }
    coldest_ = warmest_ = nullptr;
    small_ = large_ = unsplit_ = BestFitTree();
    releasable_.store(0, std::memory_order_relaxed);
    segment_count_ = free_in_tree_ = 0;
    reserved_.store(0, std::memory_order_relaxed);
    count_pieces();
}

void Heap::count_segment(const Segment& segment, std::int64_t sign) {
    const SizeClass which = size_class(segment.small);
    const auto bytes = static_cast<std::int64_t>(segment.size);
    statistics_.segments.change(which, sign);
    statistics_.reserved.change(which, sign * bytes);
    if (segment.unsplit) statistics_.oversize_segments.change(sign);
}

/// Neighbours that are free count as one, as if they had merged: in the exact-size caches they have
/// not. A segment in which nothing is active counts nothing: it can be given back.
void Heap::count_pieces() {
    struct Pieces {
        std::int64_t count = 0;
        std::int64_t bytes = 0;
    };
    std::array<Pieces, kSizeClasses> all{};
    for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
        Pieces pieces;
        bool active = false;
        bool free_before = false;
        for (const Block* block = segment->first; block != nullptr; block = block->next) {
            const BlockState state = block->state.load(std::memory_order_relaxed);
            const bool is_free = state == BlockState::free || state == BlockState::cached;
            if (is_free) {
                pieces.count += free_before ? 0 : 1;
                pieces.bytes += static_cast<std::int64_t>(block->size);
            }
            active = active || !is_free;
            free_before = is_free;
        }
        if (!active) continue;
        Pieces& sum = all[size_class(segment->small)];
        sum.count += pieces.count;
        sum.bytes += pieces.bytes;
    }
    statistics_.inactive_split.set(all[kSmallClass].count, all[kLargeClass].count);
    statistics_.inactive_split_bytes.set(all[kSmallClass].bytes, all[kLargeClass].bytes);
}

Heap::Statistics Heap::statistics(bool pieces) {
    const std::lock_guard lock(mutex_);
    if (pieces) count_pieces();
    return statistics_;
}

Heap::Totals Heap::totals() const {
    const std::lock_guard lock(mutex_);
    Totals totals;
    totals.reserved = reserved();
    totals.reserved_peak = reserved_peak();
    totals.free_in_tree = free_in_tree_;
    totals.segments = segment_count_;
    totals.splits = splits_;
    for (const BestFitTree* tree : {&small_, &large_, &unsplit_}) {
        if (const Block* const block = tree->largest()) {
            totals.largest_free = std::max(totals.largest_free, block->size);
        }
    }
    return totals;
}

std::uint64_t Heap::wholly_free() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t bytes = 0;
    for (const Segment* at = segments_; at != nullptr; at = at->next) {
        bool live = at->exported;
        for (const Block* block = at->first; block != nullptr && !live; block = block->next) {
            const BlockState state = block->state.load(std::memory_order_relaxed);
            live = state == BlockState::live || state == BlockState::streamed;
        }
        if (!live) bytes += at->size;
    }
    return bytes;
}

} // namespace cachealloc
