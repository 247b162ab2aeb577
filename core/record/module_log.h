#pragma once

#include "core/record/spin_lock.h"
#include "core/record/trace_file.h"
#include "core/record/trace_format.h"

#include <cstdint>

namespace cachealloc {

/// Loads and unloads of modules, in order.
///
/// Invariant: what lies below Section::used is whole. Thread-safe; appending makes a system call
/// now and then, under a lock that nothing else is done under.
class ModuleLog {
  public:
    /// `space` grows by `file`; both outlive the log.
    ModuleLog(TraceFile& file, SectionSpace& space);

    /// False where there is no room.
    bool append(const trace::ModuleRecord& record);
    /// How many records there are.
    std::uint32_t size() const;

  private:
    TraceFile& file_;
    SectionSpace& space_;
    SpinLock lock_{};
};

} // namespace cachealloc
