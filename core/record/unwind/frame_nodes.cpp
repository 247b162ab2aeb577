#include "core/record/unwind/frame_nodes.h"

#include <sys/mman.h>

namespace cachealloc {

namespace {

std::uint64_t hash_of(std::uint64_t pc) {
    return pc * 0x9e3779b97f4a7c15;
}

} // namespace

// Pages of zeros are nodes that nobody has taken and slots that are free.
FrameNodes::FrameNodes() {
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    nodes_ = static_cast<FrameNode*>(memory);
    slots_ = reinterpret_cast<std::atomic<std::uint32_t>*>(nodes_ + kNodes);
}

FrameNodes::~FrameNodes() {
    if (nodes_ != nullptr) munmap(nodes_, kBytes);
}

FrameNode* FrameNodes::find(std::uint64_t pc) const {
    if (nodes_ == nullptr) return nullptr;
    for (std::uint64_t at = hash_of(pc) >> (64 - kBits);; ++at) {
        const std::uint32_t held = slots_[at % kSlots].load(std::memory_order_acquire);
        if (held == 0) return nullptr;
        FrameNode& node = nodes_[held - 1];
        if (node.pc.load(std::memory_order_relaxed) == pc) return &node;
    }
}

// Two threads that add one address at once make two nodes, of which one is lost.
FrameNode* FrameNodes::find_or_add(std::uint64_t pc) {
    if (nodes_ == nullptr || pc == 0) return nullptr;
    FrameNode* made = nullptr;
    for (std::uint64_t at = hash_of(pc) >> (64 - kBits);; ++at) {
        std::atomic<std::uint32_t>& slot = slots_[at % kSlots];
        std::uint32_t held = slot.load(std::memory_order_acquire);
        if (held == 0) {
            if (made == nullptr) made = make(pc);
            if (made == nullptr) return nullptr;
            const auto mine = static_cast<std::uint32_t>(made - nodes_) + 1;
            if (slot.compare_exchange_strong(held, mine, std::memory_order_acq_rel)) return made;
        }
        FrameNode& node = nodes_[held - 1];
        if (node.pc.load(std::memory_order_relaxed) == pc) return &node;
    }
}

// A quarter of the slots stays free for ever, so that every search ends.
FrameNode* FrameNodes::make(std::uint64_t pc) {
    std::uint32_t next = used_.load(std::memory_order_relaxed);
    do {
        if (next == kNodes) return nullptr;
    } while (!used_.compare_exchange_weak(next, next + 1, std::memory_order_relaxed));
    nodes_[next].pc.store(pc, std::memory_order_relaxed);
    return nodes_ + next;
}

void FrameNodes::forget_rules() {
    const std::uint32_t used = used_.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < used; ++i)
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
