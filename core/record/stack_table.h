#pragma once

#include "core/record/trace_file.h"
#include "core/record/trace_format.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cachealloc {

/// Each distinct stack once, with its number for the events and exact totals.
///
/// Invariant: a slot whose `first` is not 0 is whole and never changes but for its totals. Two
/// stacks are taken for one when their 64-bit hashes are equal and nothing else is compared: a
/// full table of 131,072 stacks has a pair of equal hashes once in 2 billion runs, and comparing
/// would touch another cache line for every four frames of each event.
///
/// Lock-free; all functions may be called by any thread. Nothing is ever removed.
class StackTable {
  public:
    /// `slots` is zeroed and wholly allocated, `frames` grows by `file`. Both outlive the table.
    StackTable(TraceFile& file, SectionSpace& slots, SectionSpace& frames);

    /// The number of the stack, entered if it is new; 0 where there is no room. `cut`: it goes on
    /// beyond these frames. At most 65535 frames. O(frames).
    std::uint32_t intern(std::span<const trace::Frame> frames, bool cut, std::uint32_t modules);

    /// One more allocation with that stack (0: none).
    void add(std::uint32_t stack, std::uint64_t bytes) {
        if (stack == 0) return;
        trace::StackSlot& slot = slots_[stack - 1];
        slot.allocations.fetch_add(1, std::memory_order_relaxed);
        slot.bytes.fetch_add(bytes, std::memory_order_relaxed);
    }

    /// Allocates the frames' next step if it will be needed soon, so that intern() need not.
    void grow_ahead();

    /// Equal addresses mean other code from now on: they make new stacks.
    void next_generation() { generation_.fetch_add(1, std::memory_order_relaxed); }

    static std::uint64_t hash_of(std::span<const trace::Frame> frames, std::uint64_t seed);

  private:
    std::uint64_t reserve(std::uint64_t bytes);
    void take_back(std::uint64_t offset, std::uint64_t bytes);

    static constexpr std::size_t kProbes = 128;

    TraceFile& file_;
    SectionSpace& frames_;
    trace::StackSlot* const slots_;
    const std::size_t mask_;
    std::atomic<std::uint32_t> generation_{0};
};

} // namespace cachealloc
