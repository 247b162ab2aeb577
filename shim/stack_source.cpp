#include "shim/stack_source.h"

#include "shim/objects.h"

namespace cachealloc::shim {

std::size_t LateStacks::capture(trace::Frame* frames, std::size_t room, bool& cut) {
    StackSource* source = made_.load(std::memory_order_acquire);
    if (source == nullptr) [[unlikely]]
        source = make();
    return source != nullptr ? source->capture(frames, room, cut) : 0;
}

StackSource* LateStacks::make() {
    Recorder* const recorder = recorder_.load(std::memory_order_acquire);
    if (recorder == nullptr || making_.exchange(true, std::memory_order_acq_rel)) return nullptr;
    StackSource* const source = make_stack_source(choice_);
    log_modules(*recorder);
    made_.store(source, std::memory_order_release);
    return source;
}

} // namespace cachealloc::shim
