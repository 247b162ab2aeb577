#include "shim/recorded_pool.h"

#include "core/pool/block.h"

#include <algorithm>
#include <limits>

namespace cachealloc::shim {

namespace {

struct Named {
    std::uint64_t stream;
    std::uint8_t flags;
};
thread_local constinit Named t_named{};

std::uint32_t beyond(std::uint64_t occupied, std::uint64_t asked) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(std::min(occupied > asked ? occupied - asked : 0, kMost));
}

} // namespace

void StreamOfCall::begin(CUstream stream) {
    t_named = {recorded_stream(stream), trace::kStreamOrdered};
}

void StreamOfCall::end() {
    t_named = {};
}

std::uint64_t recorded_stream(CUstream stream) {
    return stream == kStreamLegacy ? 0 : reinterpret_cast<std::uintptr_t>(stream);
}

MemoryEvent RecordedPool::about(const Block& block) const {
    MemoryEvent event;
    event.address = block.address;
    event.size = block.requested.load(std::memory_order_relaxed);
    event.extra = beyond(block.size, event.size);
    event.memory = trace::MemoryType::pooled;
    event.device = context_.device;
    event.pool = context_.number;
    return event;
}

void RecordedPool::freed(const Block& block, bool settled) {
    MemoryEvent event = about(block);
    event.stream = t_named.stream;
    event.flags = t_named.flags;
    if (settled) event.flags |= trace::kSettled;
    recorder_->freed(trace::AddressSpace::device, event);
}

void RecordedPool::settled(const Block& block) {
    recorder_->note(trace::EventKind::free_completed, about(block));
}

void RecordedPool::segment_allocated(std::uint64_t base, std::uint64_t bytes, bool small) {
    note_segment(trace::EventKind::segment_alloc, base, bytes, small ? 0 : trace::kLarge);
}

void RecordedPool::segment_freed(std::uint64_t base, std::uint64_t bytes, bool small) {
    note_segment(trace::EventKind::segment_free, base, bytes, small ? 0 : trace::kLarge);
}

void RecordedPool::memory_mapped(std::uint64_t base, std::uint64_t bytes) {
    note_pieces(trace::EventKind::segment_map, base, bytes);
}

void RecordedPool::memory_unmapped(std::uint64_t base, std::uint64_t bytes) {
    note_pieces(trace::EventKind::segment_unmap, base, bytes);
}

void RecordedPool::alias_mapped(std::uint64_t base, std::uint64_t bytes) {
    note_segment(trace::EventKind::segment_map, base, bytes, trace::kLarge | trace::kSecond);
}

void RecordedPool::alias_unmapped(std::uint64_t base, std::uint64_t bytes) {
    note_segment(trace::EventKind::segment_unmap, base, bytes, trace::kLarge | trace::kSecond);
}

// One event a piece: what is mapped in one go may be unmapped in another.
void RecordedPool::note_pieces(trace::EventKind kind, std::uint64_t base, std::uint64_t bytes) {
    source_.for_each_piece(base, bytes, [&](std::uint64_t address, std::uint64_t size) {
        note_segment(kind, address, size, trace::kLarge);
    });
}

void RecordedPool::note_segment(trace::EventKind kind, std::uint64_t base, std::uint64_t bytes,
                                std::uint8_t flags) {
    MemoryEvent event;
    event.address = base;
    event.size = bytes;
    event.memory = trace::MemoryType::pooled;
    event.device = context_.device;
    event.flags = flags;
    event.pool = context_.number;
    recorder_->note(kind, event);
}

void RecordedPool::allocated(std::uint64_t address, std::uint64_t bytes, std::uint64_t occupied,
                             std::uint64_t stream, std::uint8_t flags) {
    MemoryEvent event;
    event.address = address;
    event.size = bytes;
    event.stream = stream;
    event.memory = trace::MemoryType::pooled;
    event.device = context_.device;
    event.flags = flags;
    event.pool = context_.number;
    event.extra = beyond(occupied, bytes);
    recorder_->allocated(event);
}

} // namespace cachealloc::shim
