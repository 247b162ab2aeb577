#include "core/record/unwind/frame_nodes.h"

#include <sys/mman.h>

namespace cachealloc {

namespace {

std::uint64_t hash_of(std::uint64_t pc) {
    return pc * 0x9e3779b97f4a7c15;
}

} // namespace

// Pages of zeros are nodes that nobody has taken.
FrameNodes::FrameNodes() {
    void* const memory = mmap(nullptr, kNodes * sizeof(FrameNode), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) nodes_ = static_cast<FrameNode*>(memory);
}

FrameNodes::~FrameNodes() {
    if (nodes_ != nullptr) munmap(nodes_, kNodes * sizeof(FrameNode));
}

FrameNode* FrameNodes::find(std::uint64_t pc) const {
    if (nodes_ == nullptr) return nullptr;
    for (std::uint64_t at = hash_of(pc) >> (64 - kBits);; ++at) {
        FrameNode& node = nodes_[at % kNodes];
        const std::uint64_t held = node.pc.load(std::memory_order_relaxed);
        if (held == pc) return &node;
        if (held == 0) return nullptr;
    }
}

FrameNode* FrameNodes::find_or_add(std::uint64_t pc) {
    if (nodes_ == nullptr || pc == 0) return nullptr;
    for (std::uint64_t at = hash_of(pc) >> (64 - kBits);; ++at) {
        FrameNode& node = nodes_[at % kNodes];
        std::uint64_t held = node.pc.load(std::memory_order_relaxed);
        if (held == pc) return &node;
        if (held != 0) continue;
        // A few threads at once may go over it by as many; a quarter of the nodes stays free.
        if (used_.load(std::memory_order_relaxed) >= kMostUsed) return nullptr;
        if (node.pc.compare_exchange_strong(held, pc, std::memory_order_relaxed)) {
            used_.fetch_add(1, std::memory_order_relaxed);
            return &node;
        }
        if (held == pc) return &node;
    }
}

void FrameNodes::forget_rules() {
    for (std::uint32_t i = 0; nodes_ != nullptr && i < kNodes; ++i)
        if (nodes_[i].pc.load(std::memory_order_relaxed) != 0)
            nodes_[i].rule.store(0, std::memory_order_relaxed);
}

void FrameNodes::link(FrameNode& node, const FrameNode& next) {
    const std::uint64_t pc = next.pc.load(std::memory_order_relaxed);
    // A free place, else one that the address chooses.
    std::atomic<std::uint64_t>* place = &node.next[(hash_of(pc) >> 32) % FrameNode::kNext];
    for (std::atomic<std::uint64_t>& guess : node.next) {
        if (guess.load(std::memory_order_relaxed) != 0) continue;
        place = &guess;
        break;
    }
    place->store(reinterpret_cast<std::uint64_t>(&next) | pc << kTagShift,
                 std::memory_order_relaxed);
}

} // namespace cachealloc
