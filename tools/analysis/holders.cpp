#include "tools/analysis/holders.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace cachealloc::tools {

bool HolderFilter::wants(const Block& block) const {
    if (device >= 0 && block.device != device) return false;
    return block.memory == trace::MemoryType::pinned ? host_memory
                                                     : device_memory && on_device(block.memory);
}

std::vector<Holder> holders_of(const State& state, const HolderFilter& filter) {
    std::unordered_map<std::uint32_t, Holder> by_stack;
    state.live().for_each([&](const Place&, const Block& block) {
        if (!filter.wants(block)) return;
        Holder& holder = by_stack[block.stack];
        const bool first = holder.blocks == 0;
        holder.stack = block.stack;
        holder.bytes += block.size;
        ++holder.blocks;
        holder.largest = std::max(holder.largest, block.size);
        holder.oldest = first ? block.since : std::min(holder.oldest, block.since);
        holder.types |= std::uint32_t{1} << static_cast<std::uint8_t>(block.memory);
    });
    std::vector<Holder> holders;
    holders.reserve(by_stack.size());
    for (const auto& [stack, holder] : by_stack)
        holders.push_back(holder);
    std::ranges::sort(holders, [](const Holder& a, const Holder& b) {
        return std::tie(b.bytes, b.blocks, a.stack) < std::tie(a.bytes, a.blocks, b.stack);
    });
    return holders;
}

} // namespace cachealloc::tools
