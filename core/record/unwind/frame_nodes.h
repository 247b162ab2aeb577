// What is known about return addresses, for all threads.
//
// Nodes lie in the order in which they were made, so that those of one stack are neighbours; an
// index finds them by address.
//
// Invariant: a node belongs to one address for ever. Its rule may be replaced, by a rule that holds
// for the code that is loaded then. `next` are guesses, to be checked against the node they name.
#pragma once

#include "core/record/unwind/frame_rule.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cachealloc {

struct alignas(64) FrameNode {
    static constexpr std::size_t kNext = 6;

    std::atomic<std::uint64_t> pc{0};
    std::atomic<std::uint64_t> rule{0}; ///< a FrameRule
    /// Nodes seen after this one on stacks: where they are, in the upper 16 bits the lower 16 of
    /// their address.
    std::array<std::atomic<std::uint64_t>, kNext> next{};
};
static_assert(sizeof(FrameNode) == 64);

/// Lock-free and fixed in size: 3.25 MiB of address space, of which only what is used is touched.
class FrameNodes {
  public:
    FrameNodes();
    FrameNodes(const FrameNodes&) = delete;
    FrameNodes& operator=(const FrameNodes&) = delete;
    ~FrameNodes();

    /// The node of an address, null if there is none.
    FrameNode* find(std::uint64_t pc) const;
    /// The same, made if need be; null if there is no room left.
    FrameNode* find_or_add(std::uint64_t pc);

    /// The node of `pc` if `node` has been followed by it lately, else null. Some 1 ns.
    [[gnu::always_inline]] static FrameNode* after(const FrameNode& node, std::uint64_t pc) {
        const auto low = static_cast<std::uint16_t>(pc);
        for (const std::atomic<std::uint64_t>& guess : node.next) {
            const std::uint64_t word = guess.load(std::memory_order_relaxed);
            if (word >> kTagShift != low) continue;
            auto* const named = reinterpret_cast<FrameNode*>(word & kPointer);
            if (named != nullptr && named->pc.load(std::memory_order_relaxed) == pc) return named;
        }
        return nullptr;
    }
    /// Makes after() find `next`.
    static void link(FrameNode& node, const FrameNode& next);
    /// Makes all rules unknown. O(nodes)
    void forget_rules();

  private:
    static constexpr unsigned kTagShift = 48;
    static constexpr std::uint64_t kPointer = (std::uint64_t{1} << kTagShift) - 1;
    static constexpr unsigned kBits = 16;
    static constexpr std::uint32_t kSlots = 1U << kBits;
    static constexpr std::uint32_t kNodes = kSlots / 4 * 3;
    static constexpr std::size_t kBytes =
        kNodes * sizeof(FrameNode) + kSlots * sizeof(std::atomic<std::uint32_t>);

    FrameNode* make(std::uint64_t pc);

    FrameNode* nodes_ = nullptr;                  // null: no memory
    std::atomic<std::uint32_t>* slots_ = nullptr; // a node's index plus one; 0: free
    std::atomic<std::uint32_t> used_{0};
};

} // namespace cachealloc
