// What changes what is mapped: growth, stitches, giving back. The driver is the caller's.
#include "core/pool/expandable_heap.h"

#include <algorithm>

namespace cachealloc {

namespace {

constexpr std::uint64_t whole_granules(std::uint64_t bytes) {
    return (bytes + kGranule - 1) / kGranule * kGranule;
}

} // namespace

// ---- growth

/// A hole that a growth without its neighbours would fit into, the smallest; the last one, which is
/// the rest of the range, is the largest. What is free right below it counts.
PieceRun ExpandableHeap::plan_growth(std::uint64_t size, bool fresh) const {
    const std::lock_guard lock(mutex_);
    if (is_small(size)) size = kGranule;
    const Block* const hole = holes_.best_fit(whole_granules(size));
    if (hole == nullptr) return {};
    const Block* const below = hole->previous;
    if (!fresh && is_free(below, false)) size -= std::min(size - 1, below->size);
    return {hole->address, whole_granules(size)};
}

void ExpandableHeap::change_mapped(std::int64_t by) {
    mapped_bytes_.change(by);
    mapped_.store(static_cast<std::uint64_t>(mapped_bytes_.current), std::memory_order_relaxed);
}

ExpandableHeap::Grown ExpandableHeap::add_memory(const Mapped* mapped, std::uint32_t count,
                                                 const Request* request, bool fresh) {
    const std::lock_guard lock(mutex_);
    const DeviceAddress address = mapped[0].run.address;
    const std::uint64_t bytes = mapped[count - 1].run.end() - address;
    Block* block = arena_.make();
    if (block == nullptr) return {};
    block->address = address;
    block->size = bytes;
    block->segment = &segment_;
    block->small = false;
    block->state.store(BlockState::freeing, std::memory_order_relaxed);
    if (!map_.insert(segment_, address, bytes) || !map_.set_start(block)) {
        map_.hide(segment_, address, bytes);
        arena_.recycle(block);
        return {};
    }
    for (std::uint32_t i = 0; i < count; ++i)
        range_.note_mapped(mapped[i].run.address, mapped[i].run.bytes, mapped[i].piece);
    change_mapped(static_cast<std::int64_t>(bytes));
    fill_hole(block);
    if (request == nullptr) {
        put_back(block);
        return {true, nullptr};
    }
    const bool small = is_small(request->size);
    const std::uint64_t wanted = small ? kGranule : request->size;
    if (!fresh) block = merge(block);
    if (block->size < wanted) {
        add_free(block);
        return {true, nullptr};
    }
    block = cut(block, wanted);
    affinity_.remember(request->state, block->address);
    return {true, small ? cut_slab(block, request->size) : block};
}

void ExpandableHeap::add_hole(Block* hole) {
    hole->state.store(BlockState::unmapped, std::memory_order_relaxed);
    holes_.insert(hole);
    holes_by_address_.insert(hole);
}

void ExpandableHeap::remove_hole(Block* hole) {
    holes_.erase(hole);
    holes_by_address_.erase(hole);
}

/// Puts `block` into the list of the range in place of the low end of the hole that starts there.
void ExpandableHeap::fill_hole(Block* block) {
    Block* const hole = holes_by_address_.holding(block->address, block->size);
    remove_hole(hole);
    block->previous = hole->previous;
    (block->previous != nullptr ? block->previous->next : segment_.first) = block;
    if (hole->size == block->size) {
        block->next = hole->next;
        arena_.recycle(hole);
    } else {
        hole->address += block->size;
        hole->size -= block->size;
        add_hole(hole);
        block->next = hole;
    }
    if (block->next != nullptr) block->next->previous = block;
}

// ---- stitches

/// Runs of whole free pieces, the largest ones: what a block holds of them is no more than its
/// size, so smaller blocks need no look once there are enough.
ExpandableHeap::Runs ExpandableHeap::largest_runs() const {
    Runs runs;
    for (const Block* at = large_.largest(); at != nullptr && at->size >= kGranule;
         at = large_.previous(at)) {
        const bool full = runs.count == kMostRuns;
        if (full && runs.run[kMostRuns - 1].bytes >= at->size) break;
        const PieceRun run = range_.whole_pieces(at->address, at->size);
        if (run.bytes == 0 || (full && run.bytes <= runs.run[kMostRuns - 1].bytes)) continue;
        if (full) runs.bytes -= runs.run[--runs.count].bytes;
        std::uint32_t i = runs.count++;
        const auto before = [&](const PieceRun& other) {
            return other.bytes != run.bytes ? other.bytes > run.bytes : other.address < run.address;
        };
        for (; i != 0 && !before(runs.run[i - 1]); --i)
            runs.run[i] = runs.run[i - 1];
        runs.run[i] = run;
        runs.bytes += run.bytes;
    }
    return runs;
}

/// The smallest run that covers the rest, else the largest: few runs, and large ones stay whole.
Stitch* ExpandableHeap::plan_stitch(std::uint64_t size, std::uint64_t& missing) {
    const std::lock_guard lock(mutex_);
    missing = 0;
    Runs runs = largest_runs();
    if (runs.bytes < size) {
        missing = whole_granules(size - runs.bytes);
        return nullptr;
    }
    Stitch* const stitch = stitches_.empty_slot();
    Block* const block = stitch != nullptr ? arena_.make() : nullptr;
    if (block == nullptr) return nullptr;
    for (std::uint64_t rest = size; rest != 0;) {
        std::uint32_t pick = 0;
        while (pick + 1 < runs.count && runs.run[pick + 1].bytes >= rest)
            ++pick;
        const PieceRun& from = runs.run[pick];
        const PieceRun run = from.bytes > rest ? range_.pieces_for(from.address, rest) : from;
        stitch->runs[stitch->run_count++] = run;
        stitch->size += run.bytes;
        rest -= std::min(rest, run.bytes);
        std::copy(&runs.run[pick + 1], runs.run.data() + runs.count, &runs.run[pick]);
        --runs.count;
    }
    stitch->kind = SegmentKind::stitch;
    stitch->pool = &owner_;
    stitch->first = block;
    block->size = size;
    block->segment = stitch;
    block->small = false;
    block->state.store(BlockState::freeing, std::memory_order_relaxed);
    if (!hold(*stitch, size)) {
        arena_.recycle(block);
        return nullptr;
    }
    stitch->use = Stitch::Use::changing;
    for (std::uint32_t i = 0; i < stitch->run_count; ++i)
        range_.note_aliased(stitch->runs[i]);
    return stitch;
}

Block* ExpandableHeap::commit_stitch(Stitch* stitch, DeviceAddress address,
                                     const Request& request) {
    const std::lock_guard lock(mutex_);
    stitch->base = stitch->first->address = address;
    if (!map_.insert(*stitch) || !map_.set_start(stitch->first)) {
        map_.hide(*stitch);
        return nullptr;
    }
    stitch->use = Stitch::Use::live;
    stitches_.touch(*stitch);
    affinity_.remember(request.state, address);
    return stitch->first;
}

void ExpandableHeap::abandon_stitch(Stitch* stitch) {
    const std::lock_guard lock(mutex_);
    let_go(*stitch);
    drop(*stitch);
}

void ExpandableHeap::drop(Stitch& stitch) {
    for (std::uint32_t i = 0; i < stitch.run_count; ++i)
        range_.note_alias_gone(stitch.runs[i]);
    arena_.recycle(stitch.first);
    Stitches::drop(stitch);
}

bool ExpandableHeap::stitch_slot_free() {
    const std::lock_guard lock(mutex_);
    return stitches_.empty_slot() != nullptr;
}

/// Before the driver can hand its addresses out again.
void ExpandableHeap::hide_stitch(Stitch& stitch) {
    stitch.use = Stitch::Use::changing;
    map_.clear_start(stitch.first);
    map_.hide(stitch);
}

void ExpandableHeap::forget_stitch(Stitch* stitch) {
    const std::lock_guard lock(mutex_);
    drop(*stitch);
}

void ExpandableHeap::restore_stitch(Stitch* stitch) {
    const std::lock_guard lock(mutex_);
    map_.insert(*stitch); // its tables exist: neither call can fail
    map_.set_start(stitch->first);
    stitch->use = Stitch::Use::idle;
}

// ---- giving memory back

Block* ExpandableHeap::hold_pieces(Block* free, PieceRun run) {
    Block* const block = carve(free, run.address, run.bytes);
    if (block == nullptr || block->size == run.bytes) return block;
    put_back(block); // there was no host memory to cut it
    return nullptr;
}

/// What was below and above it are blocks of their own already; holes beside it become one with it.
void ExpandableHeap::forget_pieces(Block* block) {
    const std::lock_guard lock(mutex_);
    range_.note_unmapped(block->address, block->size);
    map_.clear_start(block);
    map_.hide(segment_, block->address, block->size);
    change_mapped(-static_cast<std::int64_t>(block->size));
    const auto is_hole = [](const Block* other) {
        return other != nullptr &&
               other->state.load(std::memory_order_relaxed) == BlockState::unmapped;
    };
    if (is_hole(block->next)) {
        remove_hole(block->next);
        list_.absorb_next(block);
    }
    if (is_hole(block->previous)) {
        block = block->previous;
        remove_hole(block);
        list_.absorb_next(block);
    }
    add_hole(block);
}

void ExpandableHeap::restore_pieces(Block* block) {
    const std::lock_guard lock(mutex_);
    put_back(block);
}

// ---- all of it

/// What has memory and lies together, from block `from` on, which moves behind it.
PieceRun ExpandableHeap::next_run(const Block*& from) {
    const auto has_memory = [](const Block* block) {
        return block->state.load(std::memory_order_relaxed) != BlockState::unmapped;
    };
    while (from != nullptr && !has_memory(from))
        from = from->next;
    if (from == nullptr) return {};
    PieceRun run{from->address, 0};
    for (; from != nullptr && has_memory(from); from = from->next)
        run.bytes += from->size;
    return run;
}

PieceRun ExpandableHeap::mapped_above(DeviceAddress address) const {
    const std::lock_guard lock(mutex_);
    const Block* at = segment_.first;
    PieceRun run = next_run(at);
    while (run.bytes != 0 && run.end() <= address)
        run = next_run(at);
    return run;
}

PieceRun ExpandableHeap::aliased_by(std::uint32_t index) const {
    const std::lock_guard lock(mutex_);
    const Stitch* const stitch = stitches_.in_slot(index);
    const bool mapped = stitch != nullptr && stitch->use != Stitch::Use::changing;
    return mapped ? PieceRun{stitch->base, stitch->size} : PieceRun{};
}

void ExpandableHeap::hide_all() {
    const std::lock_guard lock(mutex_);
    const Block* at = segment_.first;
    for (PieceRun run = next_run(at); run.bytes != 0; run = next_run(at))
        map_.hide(segment_, run.address, run.bytes);
    stitches_.each([this](Stitch& stitch) { map_.hide(stitch); });
}

void ExpandableHeap::show_all() {
    const std::lock_guard lock(mutex_);
    const Block* at = segment_.first; // the tables exist: no call can fail
    for (PieceRun run = next_run(at); run.bytes != 0; run = next_run(at))
        map_.insert(segment_, run.address, run.bytes);
    stitches_.each([this](Stitch& stitch) { map_.insert(stitch); });
}

void ExpandableHeap::forget_all() {
    hide_all();
    const std::lock_guard lock(mutex_);
    stitches_.each([this](Stitch& stitch) {
        map_.clear_start(stitch.first);
        drop(stitch);
    });
    while (Block* const block = segment_.first) {
        segment_.first = block->next;
        map_.clear_start(block);
        arena_.recycle(block);
    }
    small_ = large_ = holes_ = BestFitTree();
    large_by_address_ = holes_by_address_ = AddressTree();
    free_in_trees_ = 0;
    change_mapped(-mapped_bytes_.current);
}

} // namespace cachealloc
