#pragma once

#include "core/record/spin_lock.h"
#include "core/record/trace_file.h"

#include <cstdint>
#include <string_view>

namespace cachealloc {

/// Pairs of texts: name NUL value NUL ... What comes later under the same name counts.
///
/// Invariant: what lies below Section::used is made of whole pairs. Thread-safe; O(length).
class TextLog {
  public:
    /// `space` is wholly allocated and outlives the log.
    explicit TextLog(SectionSpace& space) : space_(space) {}

    /// False where there is no room: nothing is entered then. A text ends at its first NUL.
    bool append(std::string_view name, std::string_view value);

  private:
    SectionSpace& space_;
    SpinLock lock_{};
};

} // namespace cachealloc
