#pragma once

#include "tools/trace/event.h"
#include "tools/trace/trace_file.h"

#include <cstdint>
#include <vector>

namespace cachealloc::tools {

/// What was live when the file was written last: the alloc event of each allocation, and the
/// segment_alloc or segment_map of each segment.
class LiveTable {
  public:
    explicit LiveTable(const TraceFile& file);

    /// By address.
    [[nodiscard]] const std::vector<Event>& memory() const { return memory_; }
    [[nodiscard]] const std::vector<Event>& segments() const { return segments_; }
    /// Entries that were being written, or are damaged.
    [[nodiscard]] std::uint64_t torn() const { return torn_; }
    /// Sound entries of a type or size that this reader does not know.
    [[nodiscard]] std::uint64_t unknown() const { return unknown_; }
    /// Whether all that was live is here: the table was never full and is not cut.
    [[nodiscard]] bool complete() const { return complete_; }

  private:
    std::vector<Event> memory_;
    std::vector<Event> segments_;
    std::uint64_t torn_ = 0;
    std::uint64_t unknown_ = 0;
    bool complete_ = false;
};

} // namespace cachealloc::tools
