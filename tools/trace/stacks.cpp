#include "tools/trace/stacks.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace cachealloc::tools {

// The table is read before the frames: the recorder writes a stack's frames first, so that those of
// each slot that is seen ready are there.
Stacks::Stacks(const TraceFile& file)
    : table_(file.load(trace::SectionType::stacks)),
      stride_(file.section(trace::SectionType::stacks).stride) {
    const std::vector<std::byte> frames = file.load(trace::SectionType::frames);
    const std::size_t frame_stride = file.section(trace::SectionType::frames).stride;
    if (frame_stride == sizeof(trace::Frame)) {
        frames_.resize(frames.size() / frame_stride);
        if (!frames_.empty())
            std::memcpy(frames_.data(), frames.data(), frames_.size() * frame_stride);
    }
    if (stride_ == 0) return;
    slots_ = static_cast<std::uint32_t>(std::min<std::size_t>(
        table_.size() / stride_, std::numeric_limits<std::uint32_t>::max() - 1));
    for (std::uint32_t number = 1; number <= slots_; ++number) {
        const trace::StackSlot& one = slot(number);
        const std::uint32_t first = one.first.load(std::memory_order_relaxed);
        if (one.hash.load(std::memory_order_relaxed) == 0 || first == 0) continue;
        ++used_;
        if (!readable(first, one.frames)) ++damaged_;
    }
}

const trace::StackSlot& Stacks::slot(std::uint32_t number) const {
    return *reinterpret_cast<const trace::StackSlot*>(&table_[(number - 1) * stride_]);
}

bool Stacks::readable(std::uint32_t first, std::uint32_t count) const {
    return std::uint64_t{first} - 1 + count <= frames_.size();
}

Stack Stacks::find(std::uint32_t number) const {
    Stack stack;
    if (number == 0 || number > slots_) return stack;
    const trace::StackSlot& from = slot(number);
    const std::uint32_t first = from.first.load(std::memory_order_relaxed);
    if (first == 0) return stack;
    stack.modules = from.modules;
    stack.cut = (from.flags & trace::kCutStack) != 0;
    stack.allocations = from.allocations.load(std::memory_order_relaxed);
    stack.bytes = from.bytes.load(std::memory_order_relaxed);
    if (readable(first, from.frames))
        stack.frames = std::span(frames_).subspan(first - 1, from.frames);
    return stack;
}

} // namespace cachealloc::tools
