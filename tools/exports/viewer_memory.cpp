#include "tools/exports/viewer_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace cachealloc::tools {
namespace {

using trace::AddressSpace;
using trace::EventKind;
using trace::MemoryType;

/// Device addresses lie below; what has none is put between here and twice as far, which is as far
/// as the page's numbers are exact.
constexpr std::uint64_t kHandles = std::uint64_t{1} << 52;
constexpr std::uint64_t kHandleStep = std::uint64_t{1} << 21;

/// Pool memory is of no stream. Replaying, the page joins parts of expandable segments with
/// neighbours of the same stream, whatever these are; then it does not find them any more.
constexpr std::uint64_t kExpandableStream = std::uint64_t{1} << 32;

ViewerItem item_of(const Block& block) {
    ViewerItem item;
    item.size = block.bytes();
    item.requested = block.size;
    item.stream = block.stream;
    item.stack = block.stack;
    item.memory = block.memory;
    item.pool = block.pool;
    item.place = block.place();
    return item;
}

ViewerItem item_of(const MemorySegment& segment) {
    ViewerItem item;
    item.size = segment.size;
    item.requested = segment.size;
    item.stack = segment.stack;
    item.stream = segment.expandable ? kExpandableStream : 0;
    item.pool = segment.pool;
    item.large = segment.large;
    item.expandable = segment.expandable;
    return item;
}

bool fits(std::uint64_t address, std::uint64_t size) {
    return size != 0 && address < kHandles && size < kHandles - address;
}

/// The first item that ends behind `address`; items do not overlap.
ViewerMemory::Items::iterator first_behind(ViewerMemory::Items& items, std::uint64_t address) {
    auto item = items.upper_bound(address);
    if (item != items.begin()) {
        const auto before = std::prev(item);
        if (address - before->first < before->second.size) {
            return before;
        }
    }
    return item;
}

bool can_merge(const ViewerItem& a, const ViewerItem& b) {
    return a.expandable && b.expandable && a.pool == b.pool && a.large == b.large;
}

/// Adds the ranges, as address and size, of [address, end) in which the state has no segment.
void add_uncovered(std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges, const State& state,
                   std::uint64_t address, std::uint64_t end) {
    auto part = state.segments().upper_bound(address);
    if (part != state.segments().begin()) {
        --part;
    }
    for (; part != state.segments().end() && part->first < end; ++part) {
        if (part->first > address) {
            ranges.emplace_back(address, part->first - address);
        }
        address = std::max(address, part->first + part->second.size);
    }
    if (address < end) {
        ranges.emplace_back(address, end - address);
    }
}

} // namespace

void ViewerMemory::start(const State& state) {
    // Nobody is told: this is where the events begin.
    struct Silence : ViewerSink {
        void on_change(ViewerAction, std::uint64_t, const ViewerItem&, std::uint32_t,
                       const Event&) override {}
    } silence;
    ViewerSink* const sink = std::exchange(sink_, &silence);
    const Event none;
    for (const auto& [address, segment] : state.segments()) {
        if (segment.device == device_) {
            add_segment(segment, none);
        }
    }
    state.live().for_each([&](const Place&, const Block& block) {
        if (block.device == device_) {
            add_block(block, none);
        }
    });
    for (const auto& [address, block] : state.pending()) {
        if (block.device == device_) {
            add_block(block, none);
            const auto added = blocks_.find(address);
            if (added != blocks_.end()) {
                added->second.pending = true;
            }
        }
    }
    sink_ = sink;
}

void ViewerMemory::apply(const Event& event) {
    switch (event.kind) {
    case EventKind::alloc:
        if (event.device == device_) {
            add_block(block_of(event), event);
        }
        return;
    case EventKind::free:
        free_block(event);
        return;
    case EventKind::free_completed: {
        const auto block = find_block(event);
        if (block != blocks_.end() && block->second.pending) {
            complete(block, event);
        }
        return;
    }
    case EventKind::segment_alloc:
    case EventKind::segment_map:
        if (event.device == device_) {
            add_segment(segment_of(event), event);
        }
        return;
    case EventKind::segment_free: {
        const auto segment = segments_.find(event.address);
        if (segment != segments_.end() && !segment->second.single && !segment->second.expandable) {
            end_segment(segment, event);
        }
        return;
    }
    case EventKind::segment_unmap:
        unmap_segment(event.address, event.size, event);
        return;
    default:
        return;
    }
}

void ViewerMemory::reconcile(const State& state, const Event& last) {
    std::vector<std::uint64_t> gone;
    for (const auto& [address, block] : blocks_) {
        const bool there = block.pending ? state.pending().contains(block.place.address)
                                         : state.live().find(block.place) != nullptr;
        if (!there) {
            gone.push_back(address);
        }
    }
    for (const std::uint64_t address : gone) {
        end_block(blocks_.find(address), last);
    }
    // What grows is joined here and in parts there: each part of it that is not there goes.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> unmapped;
    gone.clear();
    for (const auto& [address, segment] : segments_) {
        if (segment.expandable) {
            add_uncovered(unmapped, state, address, address + segment.size);
        } else if (!segment.single && !state.segments().contains(address)) {
            gone.push_back(address);
        }
    }
    for (const std::uint64_t address : gone) {
        end_segment(segments_.find(address), last);
    }
    for (const auto& [address, size] : unmapped) {
        unmap_segment(address, size, last);
    }
}

void ViewerMemory::tell(ViewerAction action, Items::iterator item, std::uint32_t stack,
                        const Event& cause) {
    sink_->on_change(action, item->first, item->second, stack != 0 ? stack : item->second.stack,
                     cause);
}

std::uint64_t ViewerMemory::address_of(const Place& place, std::uint64_t size, bool is_new) {
    const auto space = static_cast<AddressSpace>(place.space);
    if (space == AddressSpace::device) {
        return place.address;
    }
    auto& handles = handles_[space == AddressSpace::physical ? 1 : 0];
    const auto known = handles.find(place.address);
    if (!is_new) {
        return known != handles.end() ? known->second : 0;
    }
    // Rounded, so that no two are neighbours that the page would draw as one.
    const std::uint64_t bytes = (size / kHandleStep + 2) * kHandleStep;
    if (next_handle_ + bytes >= kHandles) {
        next_handle_ = 0;
    }
    const std::uint64_t address = kHandles + next_handle_;
    next_handle_ += bytes;
    handles[place.address] = address;
    return address;
}

void ViewerMemory::add_block(const Block& block, const Event& cause) {
    if (!trace::on_device(block.memory)) {
        return;
    }
    ViewerItem item = item_of(block);
    const auto space = static_cast<AddressSpace>(item.place.space);
    const bool has_address = space == AddressSpace::device;
    if (!fits(has_address ? block.address : 0, item.size)) {
        ++left_out_;
        return;
    }
    if (!has_address) { // the same handle again: what it was before is gone
        const auto before = blocks_.find(address_of(item.place, 0, false));
        if (before != blocks_.end()) {
            end_block(before, cause);
        }
    }
    const std::uint64_t address = address_of(item.place, item.size, true);
    end_blocks(address, item.size, cause);
    const auto segment = first_behind(segments_, address);
    const bool alone = segment == segments_.end() || segment->first >= address + item.size;
    const bool inside = !alone && segment->first <= address &&
                        address + item.size <= segment->first + segment->second.size;
    if (!alone && !(inside && block.memory == MemoryType::pooled)) {
        ++left_out_;
        return;
    }
    if (alone) {
        ViewerItem own = item;
        own.requested = own.size;
        own.single = true;
        own.large = true;
        tell(ViewerAction::segment_alloc, segments_.emplace(address, own).first, cause.stack,
             cause);
    }
    tell(ViewerAction::alloc, blocks_.emplace(address, item).first, cause.stack, cause);
}

ViewerMemory::Items::iterator ViewerMemory::find_block(const Event& event) {
    const Block block = block_of(event);
    if (!trace::on_device(block.memory)) {
        return blocks_.end();
    }
    return blocks_.find(address_of(block.place(), 0, false));
}

void ViewerMemory::free_block(const Event& event) {
    const auto block = find_block(event);
    if (block == blocks_.end() || block->second.pending) {
        return;
    }
    tell(ViewerAction::free_requested, block, event.free_stack, event);
    block->second.pending = true;
    if (event.has(trace::kSettled) || block->second.memory != MemoryType::pooled) {
        complete(block, event);
    }
}

void ViewerMemory::complete(Items::iterator block, const Event& cause) {
    tell(ViewerAction::free_completed, block, cause.free_stack, cause);
    const auto segment = first_behind(segments_, block->first);
    blocks_.erase(block);
    if (segment->second.single) {
        tell(ViewerAction::segment_free, segment, cause.free_stack, cause);
        segments_.erase(segment);
    }
}

void ViewerMemory::end_block(Items::iterator block, const Event& cause) {
    if (!block->second.pending) {
        tell(ViewerAction::free_requested, block, 0, cause);
    }
    complete(block, cause);
}

void ViewerMemory::end_blocks(std::uint64_t address, std::uint64_t size, const Event& cause) {
    for (auto block = first_behind(blocks_, address);
         block != blocks_.end() && block->first < address + size;) {
        const auto next = std::next(block);
        end_block(block, cause);
        block = next;
    }
}

void ViewerMemory::add_segment(const MemorySegment& segment, const Event& cause) {
    if (!fits(segment.address, segment.size)) {
        ++left_out_;
        return;
    }
    ViewerItem item = item_of(segment);
    if (item.expandable) {
        map_segment(segment.address, item, cause);
        return;
    }
    end_segments(segment.address, segment.size, cause);
    tell(ViewerAction::segment_alloc, segments_.emplace(segment.address, item).first, cause.stack,
         cause);
}

void ViewerMemory::map_segment(std::uint64_t address, ViewerItem item, const Event& cause) {
    for (auto there = first_behind(segments_, address);
         there != segments_.end() && there->first < address + item.size; ++there) {
        if (there->second.expandable) { // it is mapped already
            ++left_out_;
            return;
        }
    }
    end_segments(address, item.size, cause);
    const auto added = segments_.emplace(address, item).first;
    tell(ViewerAction::segment_map, added, cause.stack, cause);
    const auto next = std::next(added);
    if (next != segments_.end() && next->first == address + item.size &&
        can_merge(next->second, item)) {
        added->second.size += next->second.size;
        segments_.erase(next);
    }
    if (added != segments_.begin()) {
        const auto before = std::prev(added);
        if (before->first + before->second.size == address && can_merge(before->second, item)) {
            before->second.size += added->second.size;
            segments_.erase(added);
        }
    }
}

void ViewerMemory::unmap_segment(std::uint64_t address, std::uint64_t size, const Event& cause) {
    if (!fits(address, size)) {
        return;
    }
    const std::uint64_t end = address + size;
    const auto whole = first_behind(segments_, address);
    if (whole == segments_.end() || !whole->second.expandable || whole->first > address ||
        whole->first + whole->second.size < end) {
        return;
    }
    end_blocks(address, size, cause);
    ViewerItem part = whole->second;
    part.size = size;
    sink_->on_change(ViewerAction::segment_unmap, address, part,
                     cause.stack != 0 ? cause.stack : part.stack, cause);
    const std::uint64_t whole_end = whole->first + whole->second.size;
    if (end < whole_end) {
        part.size = whole_end - end;
        segments_.emplace(end, part);
    }
    if (whole->first == address) {
        segments_.erase(whole);
    } else {
        whole->second.size = address - whole->first;
    }
}

void ViewerMemory::end_segment(Items::iterator segment, const Event& cause) {
    const std::uint64_t address = segment->first;
    end_blocks(address, segment->second.size, cause);
    // A segment of one block went with it.
    segment = segments_.find(address);
    if (segment == segments_.end()) {
        return;
    }
    tell(segment->second.expandable ? ViewerAction::segment_unmap : ViewerAction::segment_free,
         segment, cause.stack, cause);
    segments_.erase(segment);
}

void ViewerMemory::end_segments(std::uint64_t address, std::uint64_t size, const Event& cause) {
    for (auto segment = first_behind(segments_, address);
         segment != segments_.end() && segment->first < address + size;) {
        const std::uint64_t place = segment->first;
        end_segment(segment, cause);
        segment = segments_.upper_bound(place);
    }
}

} // namespace cachealloc::tools
