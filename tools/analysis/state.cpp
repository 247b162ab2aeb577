#include "tools/analysis/state.h"

#include <iterator>

namespace cachealloc::tools {

// Adding ~0 times a number takes it away, modulo 2^64.
void State::count(const Block& block, std::uint64_t sign) {
    DeviceBytes& bytes = bytes_of(block.device);
    if (trace::on_device(block.memory)) bytes.live += sign * block.size;
    if (block.memory == trace::MemoryType::pinned) bytes.host += sign * block.size;
    if (block.memory == trace::MemoryType::pooled) {
        bytes.pooled += sign * block.size;
        bytes.handed += sign * block.bytes();
    }
}

void State::add_live(const Block& block) {
    count(block, 1);
    live_.insert(block.place(), block);
}

bool State::remove_live(const Place& place, Block& block) {
    const Block* const found = live_.find(place);
    if (found == nullptr) return false;
    block = *found;
    count(block, ~std::uint64_t{0});
    live_.erase(place);
    return true;
}

void State::add_pending(const Block& block) {
    Block replaced;
    remove_pending(block.address, replaced);
    bytes_of(block.device).pending += block.bytes();
    pending_.emplace(block.address, block);
}

bool State::remove_pending(std::uint64_t address, Block& block) {
    const auto found = pending_.find(address);
    if (found == pending_.end()) return false;
    block = found->second;
    bytes_of(block.device).pending -= block.bytes();
    pending_.erase(found);
    return true;
}

void State::end_pending(std::uint64_t address, std::uint64_t bytes) {
    auto at = pending_.lower_bound(address);
    if (at != pending_.begin()) {
        const Block& before = std::prev(at)->second;
        if (address - before.address < before.bytes()) --at;
    }
    while (at != pending_.end() && at->first - address < bytes) {
        bytes_of(at->second.device).pending -= at->second.bytes();
        at = pending_.erase(at);
    }
}

void State::add_segment(const MemorySegment& segment) {
    remove_segment(segment.address);
    if (!segment.second) bytes_of(segment.device).reserved += segment.size;
    segments_.emplace(segment.address, segment);
}

bool State::remove_segment(std::uint64_t address) {
    const auto found = segments_.find(address);
    if (found == segments_.end()) return false;
    if (!found->second.second) bytes_of(found->second.device).reserved -= found->second.size;
    segments_.erase(found);
    return true;
}

Block block_of(const Event& event) {
    return {.address = event.address,
            .size = event.size,
            .since = event.kind == trace::EventKind::alloc ? event.time : 0,
            .stream = event.stream,
            .stack = event.stack,
            .thread = event.thread,
            .extra = event.extra,
            .memory = event.memory,
            .device = event.device,
            .flags = event.flags,
            .pool = event.pool};
}

MemorySegment segment_of(const Event& event) {
    const bool part = event.kind == trace::EventKind::segment_map ||
                      event.kind == trace::EventKind::segment_unmap;
    const bool begins = event.kind == trace::EventKind::segment_alloc ||
                        event.kind == trace::EventKind::segment_map;
    return {.address = event.address,
            .size = event.size,
            .since = begins ? event.time : 0,
            .stack = begins ? event.stack : 0,
            .device = event.device,
            .pool = event.pool,
            .large = event.has(trace::kLarge),
            .expandable = part,
            .second = event.has(trace::kSecond)};
}

} // namespace cachealloc::tools
