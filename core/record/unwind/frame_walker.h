// Walks a stack by remembered rules.
//
// Invariant: a walk is exact or gives up. The caller's registers of each frame follow from the
// frame's own by the rule that its unwind table gives for its return address; nothing is guessed.
// That a guess names the right node is checked by its address, and every load lies between the
// stack pointer of the frame at hand and the end of the thread's stack.
#pragma once

#include "core/record/trace_format.h"
#include "core/record/unwind/frame_nodes.h"
#include "core/record/unwind/stack_bounds.h"
#include "core/record/unwind/unwind_platform.h"

#include <cstddef>
#include <cstdint>

namespace cachealloc {

class FrameWalker {
  public:
    static constexpr std::size_t kGaveUp = ~std::size_t{0};

    /// A call, as it will be just after it has returned.
    struct Start {
        std::uintptr_t pc;
        std::uintptr_t rsp;
        std::uintptr_t rbp;
    };

    explicit FrameWalker(const UnwindPlatform& platform) : platform_(platform) {}

    /// Writes the return addresses from `start` on, innermost first and without the leading ones
    /// of the recorder itself; at most `room`. kGaveUp where a rule does not hold for some frame.
    /// Lock-free, no allocation. Hot: some 2 ns a frame; an address met for the first time: 1 us.
    std::size_t walk(const Start& start, const StackBounds& stack, std::uint16_t generation,
                     trace::Frame* frames, std::size_t room, bool& cut);

    /// Every rule is learnt anew. Not beside a walk of the generation that comes.
    void forget_rules() { nodes_.forget_rules(); }

  private:
    struct State {
        std::uintptr_t pc;
        FrameNode* node; // of pc
        std::uintptr_t rsp;
        std::uintptr_t last; // word of the stack
        std::uintptr_t rbp;
        std::uint16_t generation;

        bool on_stack(std::uintptr_t address) const { return address >= rsp && address <= last; }
    };
    enum class Step : std::uint8_t { more, end, gave_up };

    Step step(State& state);
    Step rare_step(State& state);
    FrameNode* learn(std::uint64_t pc, std::uint16_t generation);
    FrameNode* follow(FrameNode& node, std::uint64_t pc, std::uint16_t generation);
    bool own(std::uint64_t pc) const {
        return pc - platform_.own_start < platform_.own_end - platform_.own_start;
    }

    const UnwindPlatform& platform_;
    FrameNodes nodes_;
};

} // namespace cachealloc
