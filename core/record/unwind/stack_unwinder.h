// The stacks of a recording: the exact walker first, a full unwinder where the walker gives up.
#pragma once

#include "core/options.h"
#include "core/record/recorder.h"
#include "core/record/unwind/frame_walker.h"
#include "core/record/unwind/full_unwinder.h"
#include "core/record/unwind/unwind_platform.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cachealloc {

class StackUnwinder final : public StackSource {
  public:
    /// `libunwind` and `gcc` never walk. With `check` every walk is compared with libgcc's way.
    StackUnwinder(UnwinderChoice choice, const UnwindPlatform& platform, bool check = false);

    std::size_t capture(trace::Frame* frames, std::size_t room, bool& cut) override;

    /// Around every unloading of code, by any thread: what was known about addresses may not hold
    /// for other code at the same place. In between nothing is walked.
    void before_unloading() { unloading_.fetch_add(1); }
    /// `unloaded`: code may have gone.
    void after_unloading(bool unloaded);

    /// How the captures so far went, into the stacks_* counters (but for those dropped). Any
    /// thread.
    void publish(trace::Counters& counters) const;

  private:
    // A count that many threads raise is spread over cache lines.
    struct alignas(64) Counts {
        std::atomic<std::uint64_t> walked{0};
        std::atomic<std::uint64_t> unwound{0};
    };
    static constexpr std::size_t kCounts = 32;
    Counts& counts();
    void compare(std::uintptr_t first, const trace::Frame* frames, std::size_t count, bool cut,
                 std::size_t room);

    const UnwindPlatform platform_;
    const bool check_;
    const FullUnwinder full_{platform_};
    FrameWalker walker_{platform_};
    // Never 0: that is the generation of what is not known yet.
    std::atomic<std::uint16_t> generation_{1};
    std::atomic<std::uint32_t> unloading_{0};
    std::atomic<std::uint64_t> differed_{0};
    std::array<Counts, kCounts> counts_;
};

} // namespace cachealloc
