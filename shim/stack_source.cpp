#include "shim/stack_source.h"

#include "shim/objects.h"

#include <sched.h>

namespace cachealloc::shim {

namespace {

constexpr int kYields = 20000;

} // namespace

std::size_t LateStacks::capture(trace::Frame* frames, std::size_t room, bool& cut) {
    StackSource* source = made_.load(std::memory_order_acquire);
    if (source == nullptr) [[unlikely]]
        source = make();
    return source != nullptr ? source->capture(frames, room, cut) : 0;
}

StackSource* LateStacks::make() {
    Recorder* const recorder = recorder_.load(std::memory_order_acquire);
    if (recorder == nullptr) return nullptr;
    if (making_.exchange(true, std::memory_order_acq_rel)) {
        // Another thread does it, a few ms. Not for ever: this one may be inside the loader, for
        // which that one waits.
        for (int i = 0; i < kYields && made_.load(std::memory_order_acquire) == nullptr; ++i)
            sched_yield();
        return made_.load(std::memory_order_acquire);
    }
    StackSource* const source = make_stack_source(choice_);
    log_modules(*recorder);
    made_.store(source, std::memory_order_release);
    return source;
}

} // namespace cachealloc::shim
