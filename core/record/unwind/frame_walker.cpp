#include "core/record/unwind/frame_walker.h"

#include "core/record/unwind/frame_tables.h"

#include <cstring>

namespace cachealloc {

namespace {

constexpr std::uintptr_t kWord = sizeof(std::uint64_t);

std::uint64_t word_at(std::uintptr_t address) {
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

// From one frame to its caller's. The loop's body: everything stays in registers, and a rule of
// another generation is no shape at all, so that it costs no comparison of its own.
[[gnu::always_inline]] inline FrameWalker::Step FrameWalker::step(State& state) {
    using Shape = FrameRule::Shape;
    FrameRule rule{state.node->rule.load(std::memory_order_relaxed)};
    if (rule.shape_in(state.generation) > static_cast<std::uint32_t>(Shape::complex)) [[unlikely]] {
        if (learn(state.pc, state.generation) == nullptr) return Step::gave_up;
        rule = FrameRule(state.node->rule.load(std::memory_order_relaxed));
    }
    const std::uintptr_t low = state.rsp;
    const std::uintptr_t last = state.last;
    const auto on_stack = [&](std::uintptr_t address) { return address >= low && address <= last; };
    const auto cfa_offset = static_cast<std::uintptr_t>(rule.cfa_offset());
    const auto rbp_offset = static_cast<std::uintptr_t>(rule.rbp_offset());
    std::uintptr_t cfa = 0;
    switch (static_cast<Shape>(rule.shape_in(state.generation))) {
    case Shape::rsp:
        cfa = state.rsp + cfa_offset;
        if (!on_stack(cfa - kWord)) return Step::gave_up;
        break;
    case Shape::rsp_saved:
        cfa = state.rsp + cfa_offset;
        if (!on_stack(cfa - kWord)) return Step::gave_up;
        state.rbp = word_at(cfa + rbp_offset);
        break;
    case Shape::rbp:
        cfa = state.rbp + cfa_offset;
        if (!on_stack(cfa - kWord)) return Step::gave_up;
        break;
    case Shape::rbp_saved:
        cfa = state.rbp + cfa_offset;
        if (!on_stack(cfa - 2 * kWord)) return Step::gave_up;
        state.rbp = word_at(cfa - 2 * kWord);
        break;
    case Shape::rbp_deref:
        if (!on_stack(state.rbp + cfa_offset) || !on_stack(state.rbp + rbp_offset))
            return Step::gave_up;
        cfa = word_at(state.rbp + cfa_offset);
        if (!on_stack(cfa - kWord)) return Step::gave_up;
        state.rbp = word_at(state.rbp + rbp_offset);
        break;
    case Shape::end:
        return Step::end;
    default:
        return Step::gave_up;
    }
    state.pc = word_at(cfa - kWord);
    state.rsp = cfa;
    FrameNode* next = FrameNodes::after(*state.node, state.pc);
    if (next == nullptr) [[unlikely]] {
        if (state.pc == 0) return Step::end; // as everybody who makes stacks by hand knows
        next = follow(*state.node, state.pc, state.generation);
        if (next == nullptr) return Step::gave_up;
    }
    state.node = next;
    return Step::more;
}

std::size_t FrameWalker::walk(const Start& start, const StackBounds& stack,
                              std::uint16_t generation, trace::Frame* frames, std::size_t room,
                              bool& cut) {
    State state{start.pc,           start.rsp, start.rbp, nodes_.find(start.pc),
                stack.high - kWord, generation};
    if (state.node == nullptr) state.node = learn(start.pc, generation);
    if (state.node == nullptr) return kGaveUp;
    for (; own(state.pc);) {
        const Step step_made = step(state);
        if (step_made != Step::more) return step_made == Step::end ? 0 : kGaveUp;
    }
    for (std::size_t count = 0;;) {
        if (count == room) {
            cut = true;
            return count;
        }
        frames[count++] = state.pc;
        const Step step_made = step(state);
        if (step_made != Step::more) return step_made == Step::end ? count : kGaveUp;
    }
}

} // namespace cachealloc
