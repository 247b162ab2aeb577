#pragma once

#include "core/record/trace_file.h"
#include "core/record/trace_format.h"

#include <cstdint>

namespace cachealloc {

/// The threads that were recorded. A number is never given to a second thread (the system's own
/// thread ids are), so that what a thread did stays told apart.
///
/// Lock-free. A record is written by its thread alone.
class ThreadLog {
  public:
    /// `space` grows by `file`; both outlive the log.
    ThreadLog(TraceFile& file, SectionSpace& space);

    /// Enters the calling thread; its number, or 0 where there is no room. Makes system calls.
    std::uint32_t enter(std::uint64_t now);
    /// Takes the calling thread's name as it is now. One system call. Nothing for number 0.
    void refresh_name(std::uint32_t number);
    /// The thread ended at that time; 0: it goes on after all. Nothing for number 0.
    void set_end(std::uint32_t number, std::uint64_t time);
    /// Whether the thread still runs, as far as the system tells: true in doubt, and for number 0.
    /// One system call.
    bool runs(std::uint32_t number) const;

  private:
    trace::ThreadRecord* record(std::uint32_t number) const;

    TraceFile& file_;
    SectionSpace& space_;
};

} // namespace cachealloc
