// Stacks by a whole unwinder: libunwind's unw_backtrace() or libgcc's _Unwind_Backtrace().
//
// Slower than the walker (70 to 90 ns a frame with libgcc, 6 with libunwind once its caches are
// warm) but at home everywhere: signal frames, code without tables, other stacks.
#pragma once

#include "core/record/trace_format.h"
#include "core/record/unwind/unwind_platform.h"

#include <cstddef>
#include <cstdint>

namespace cachealloc {

class FullUnwinder {
  public:
    /// Frames kept at most, whatever the room.
    static constexpr std::size_t kMaxFrames = 256;

    explicit FullUnwinder(const UnwindPlatform& platform) : platform_(platform) {}

    /// Writes the return addresses from `first` on, innermost first; all of them, the unwinder's
    /// own included, if `first` is not among the innermost. At most `room`; `cut` says that there
    /// are more. Thread-safe; may be re-entered by a signal handler. 0: no frame was found.
    std::size_t capture(std::uintptr_t first, trace::Frame* frames, std::size_t room,
                        bool& cut) const;
    /// The same, by libgcc in any case.
    std::size_t capture_by_libgcc(std::uintptr_t first, trace::Frame* frames, std::size_t room,
                                  bool& cut) const;

  private:
    std::size_t keep(void* const* raw, std::size_t count, std::uintptr_t first,
                     trace::Frame* frames, std::size_t room, bool& cut) const;

    const UnwindPlatform& platform_;
};

} // namespace cachealloc
