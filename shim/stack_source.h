// The recording's source of stacks, made when the first one is wanted.
//
// Invariant: the dynamic linker is not asked for anything while the process's state is being made:
// another thread may hold its lock, inside a constructor that waits for that state. Who finds the
// source being made for long goes without a stack.
#pragma once

#include "core/options.h"
#include "core/record/recorder.h"

#include <atomic>

namespace cachealloc::shim {

class LateStacks final : public StackSource {
  public:
    // Before Recorder::start(), and after it.
    void choose(UnwinderChoice choice) { choice_ = choice; }
    void started(Recorder& recorder) { recorder_.store(&recorder, std::memory_order_release); }

    std::size_t capture(trace::Frame* frames, std::size_t room, bool& cut) override;

  private:
    StackSource* make();

    UnwinderChoice choice_ = UnwinderChoice::automatic;
    std::atomic<Recorder*> recorder_{nullptr};
    std::atomic<bool> making_{false};
    std::atomic<StackSource*> made_{nullptr};
};

} // namespace cachealloc::shim
