#include "core/record/unwind/frame_walker.h"

#include "core/record/unwind/frame_tables.h"

#include <cstring>

namespace cachealloc {

namespace {

// Other threads' stacks and what sanitizers poison are not at issue: the address is a word of the
// thread's own stack that its callers have saved there.
[[gnu::no_sanitize("address", "thread", "undefined"), gnu::always_inline]] inline std::uint64_t
word_at(std::uintptr_t address) {
    return *reinterpret_cast<const std::uint64_t*>(address);
}

} // namespace

// Learns the rule of `pc`, anew if it is of another generation. Null: no object, or no room.
[[gnu::noinline]] FrameNode* FrameWalker::learn(std::uint64_t pc, std::uint16_t generation) {
    CodeObject object;
    if (!platform_.find_object(pc - 1, object)) return nullptr;
    FrameNode* const node = nodes_.find_or_add(pc);
    if (node == nullptr) return nullptr;
    const FrameRule rule = FrameTables(object).rule(pc).of_generation(generation);
    node->rule.store(rule.word(), std::memory_order_relaxed);
    return node;
}

[[gnu::noinline]] FrameNode* FrameWalker::follow(FrameNode& node, std::uint64_t pc,
                                                 std::uint16_t generation) {
    FrameNode* next = nodes_.find(pc);
    if (next == nullptr) next = learn(pc, generation);
    if (next != nullptr) nodes_.link(node, *next);
    return next;
}

[[gnu::no_sanitize("address", "thread")]] std::size_t
FrameWalker::walk(const Start& start, const StackBounds& stack, std::uint16_t generation,
                  trace::Frame* frames, std::size_t room, bool& cut) {
    using Shape = FrameRule::Shape;
    std::uintptr_t pc = start.pc;
    std::uintptr_t rsp = start.rsp;
    std::uintptr_t rbp = start.rbp;
    const std::uintptr_t last = stack.high - sizeof(std::uint64_t);
    const auto on_stack = [&](std::uintptr_t address) { return address >= rsp && address <= last; };
    FrameNode* node = nodes_.find(pc);
    if (node == nullptr) node = learn(pc, generation);
    std::size_t count = 0;
    for (bool inner = true; node != nullptr;) {
        FrameRule rule{node->rule.load(std::memory_order_relaxed)};
        if (rule.generation() != generation) [[unlikely]] {
            if (learn(pc, generation) == nullptr) return kGaveUp;
            rule = FrameRule(node->rule.load(std::memory_order_relaxed));
            if (rule.generation() != generation) return kGaveUp; // a race with a newer one
        }
        inner = inner && own(pc);
        if (!inner) {
            if (count == room) {
                cut = true;
                return count;
            }
            frames[count++] = pc;
        }
        std::uintptr_t cfa = 0;
        std::uintptr_t saved_at = 0; // the caller's rbp, or 0 if it is still in place
        const auto cfa_offset = static_cast<std::uintptr_t>(rule.cfa_offset());
        const auto rbp_offset = static_cast<std::uintptr_t>(rule.rbp_offset());
        switch (rule.shape()) {
        case Shape::rsp:
            cfa = rsp + cfa_offset;
            break;
        case Shape::rsp_saved:
            cfa = rsp + cfa_offset;
            saved_at = cfa + rbp_offset;
            break;
        case Shape::rbp:
            cfa = rbp + cfa_offset;
            break;
        case Shape::rbp_saved:
            cfa = rbp + cfa_offset;
            saved_at = cfa + rbp_offset;
            break;
        case Shape::rbp_deref:
            if (!on_stack(rbp + cfa_offset)) return kGaveUp;
            cfa = word_at(rbp + cfa_offset);
            saved_at = rbp + rbp_offset;
            break;
        case Shape::end:
            return count;
        default:
            return kGaveUp;
        }
        const std::uintptr_t return_slot = cfa - sizeof(std::uint64_t);
        if (!on_stack(return_slot)) return kGaveUp;
        if (saved_at != 0) {
            if (!on_stack(saved_at)) return kGaveUp;
            rbp = word_at(saved_at);
        }
        pc = word_at(return_slot);
        rsp = cfa;
        if (pc == 0) return count; // the end too, as everybody who makes stacks by hand knows
        FrameNode* const next = nodes_.after(*node, pc);
        node = next != nullptr ? next : follow(*node, pc, generation);
    }
    return kGaveUp;
}

} // namespace cachealloc
