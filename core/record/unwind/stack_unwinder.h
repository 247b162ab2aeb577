// The stacks of a recording: the exact walker first, a full unwinder where the walker gives up.
#pragma once

#include "core/options.h"
#include "core/record/recorder.h"
#include "core/record/unwind/full_unwinder.h"
#include "core/record/unwind/unwind_platform.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cachealloc {

class StackUnwinder final : public StackSource {
  public:
    /// `libunwind` and `gcc` never walk.
    StackUnwinder(UnwinderChoice choice, const UnwindPlatform& platform);

    std::size_t capture(trace::Frame* frames, std::size_t room, bool& cut) override;

    /// How the captures so far went, into the three stacks_* counters. Any thread.
    void publish(trace::Counters& counters) const;

  private:
    // A count that many threads raise is spread over cache lines.
    struct alignas(64) Counts {
        std::atomic<std::uint64_t> walked{0};
        std::atomic<std::uint64_t> unwound{0};
        std::atomic<std::uint64_t> failed{0};
    };
    static constexpr std::size_t kCounts = 32;
    Counts& counts();

    const UnwindPlatform platform_;
    const FullUnwinder full_{platform_};
    std::array<Counts, kCounts> counts_;
};

} // namespace cachealloc
