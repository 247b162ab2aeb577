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

// From one frame to its caller's: the loop's body. Everything stays in registers, and nothing but
// what is rare branches: stacks that differ each time would make the processor guess wrong at each
// frame.
[[gnu::always_inline]] inline FrameWalker::Step FrameWalker::step(State& state) {
    FrameRule rule{state.node->rule.load(std::memory_order_relaxed)};
    const std::uint32_t shape = rule.shape_in(state.generation);
    if (shape >= FrameRule::kPlainShapes) [[unlikely]] {
        State copy = state; // whose address may be known, unlike the original's
        const Step made = rare_step(copy);
        if (made != Step::more) return made;
        state = copy;
    } else {
        const std::uintptr_t base = (shape & FrameRule::kFromRbp) != 0 ? state.rbp : state.rsp;
        const std::uintptr_t cfa = base + static_cast<std::uintptr_t>(rule.cfa_offset());
        const std::uintptr_t lowest = cfa - kWord - (shape & FrameRule::kSavesRbp) * (kWord / 2);
        if (lowest < state.rsp || cfa - kWord > state.last) return Step::gave_up;
        const std::uint64_t saved = word_at(cfa + static_cast<std::uintptr_t>(rule.rbp_offset()));
        state.rbp = (shape & FrameRule::kSavesRbp) != 0 ? saved : state.rbp;
        state.pc = word_at(cfa - kWord);
        state.rsp = cfa;
    }
    FrameNode* next = FrameNodes::after(*state.node, state.pc);
    if (next == nullptr) [[unlikely]] {
        if (state.pc == 0) return Step::end; // as everybody who makes stacks by hand knows
        next = follow(*state.node, state.pc, state.generation);
        if (next == nullptr) return Step::gave_up;
    }
    state.node = next;
    return Step::more;
}

// The same but for finding the next node, for rules of another generation too.
[[gnu::noinline]] FrameWalker::Step FrameWalker::rare_step(State& state) {
    using Shape = FrameRule::Shape;
    FrameRule rule{state.node->rule.load(std::memory_order_relaxed)};
    if (rule.shape_in(state.generation) >= FrameRule::kShapes) {
        if (learn(state.pc, state.generation) == nullptr) return Step::gave_up;
        rule = FrameRule(state.node->rule.load(std::memory_order_relaxed));
    }
    const auto cfa_offset = static_cast<std::uintptr_t>(rule.cfa_offset());
    const auto rbp_offset = static_cast<std::uintptr_t>(rule.rbp_offset());
    std::uintptr_t cfa = 0;
    std::uintptr_t saved_at = 0;
    switch (static_cast<Shape>(rule.shape_in(state.generation))) {
    case Shape::rsp:
    case Shape::rsp_saved:
        cfa = state.rsp + cfa_offset;
        saved_at = cfa + rbp_offset;
        break;
    case Shape::rbp:
    case Shape::rbp_saved:
        cfa = state.rbp + cfa_offset;
        saved_at = cfa + rbp_offset;
        break;
    case Shape::rbp_deref:
        if (!state.on_stack(state.rbp + cfa_offset)) return Step::gave_up;
        cfa = word_at(state.rbp + cfa_offset);
        saved_at = state.rbp + rbp_offset;
        break;
    case Shape::end:
        return Step::end;
    default:
        return Step::gave_up;
    }
    if (!state.on_stack(cfa - kWord) || !state.on_stack(saved_at)) return Step::gave_up;
    if (rule.shape() != Shape::rsp && rule.shape() != Shape::rbp) state.rbp = word_at(saved_at);
    state.pc = word_at(cfa - kWord);
    state.rsp = cfa;
    return Step::more;
}

std::size_t FrameWalker::walk(const Start& start, const StackBounds& stack,
                              std::uint16_t generation, trace::Frame* frames, std::size_t room,
                              bool& cut) {
    State state{start.pc,  nodes_.find(start.pc), start.rsp, stack.high - kWord, start.rbp,
                generation};
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
