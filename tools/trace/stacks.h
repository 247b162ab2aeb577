#pragma once

#include "tools/trace/trace_file.h"

#include <cstdint>
#include <span>
#include <vector>

namespace cachealloc::tools {

/// A distinct stack, as far as it can be read.
struct Stack {
    std::span<const trace::Frame> frames; ///< return addresses, innermost first; may be empty
    std::uint32_t modules = 0;            ///< ModuleRecords in the log when it was first seen
    bool cut = false;                     ///< it went on beyond the frames kept
    std::uint64_t allocations = 0;        ///< in the whole run, whatever the ring forgot
    std::uint64_t bytes = 0;
};

/// The stack table. Stacks are read when they are asked for, their numbers are not trusted.
class Stacks {
  public:
    explicit Stacks(const TraceFile& file);

    /// The stack with that number; an empty one for 0 and for what is not there. O(1). The frames
    /// live as long as this object.
    [[nodiscard]] Stack find(std::uint32_t number) const;
    /// Numbers go from 1 to this; not each is in use.
    [[nodiscard]] std::uint32_t largest() const { return slots_; }
    /// Stacks in use, and those of them whose frames cannot be read.
    [[nodiscard]] std::uint64_t used() const { return used_; }
    [[nodiscard]] std::uint64_t damaged() const { return damaged_; }

  private:
    [[nodiscard]] const trace::StackSlot& slot(std::uint32_t number) const;
    [[nodiscard]] bool readable(std::uint32_t first, std::uint32_t count) const;

    std::vector<std::byte> table_;
    std::size_t stride_;
    std::uint32_t slots_ = 0;
    std::vector<trace::Frame> frames_;
    std::uint64_t used_ = 0;
    std::uint64_t damaged_ = 0;
};

} // namespace cachealloc::tools
