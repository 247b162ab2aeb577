#include "core/record/unwind/stack_unwinder.h"

#include <pthread.h>

namespace cachealloc {

namespace {

UnwindPlatform chosen(UnwinderChoice choice, UnwindPlatform platform) {
    if (choice != UnwinderChoice::automatic) platform.find_object = nullptr;
    if (choice == UnwinderChoice::gcc) platform.unw_backtrace = nullptr;
    return platform;
}

} // namespace

StackUnwinder::StackUnwinder(UnwinderChoice choice, const UnwindPlatform& platform)
    : platform_(chosen(choice, platform)) {}

// Not inlined: its own frame, which __builtin_frame_address makes the compiler set up with rbp, is
// where the stack is entered.
[[gnu::noinline]] std::size_t StackUnwinder::capture(trace::Frame* frames, std::size_t room,
                                                     bool& cut) {
    const auto* const frame = static_cast<const std::uintptr_t*>(__builtin_frame_address(0));
    const std::uintptr_t first = frame[1];
    cut = false;
    if (room == 0) return 0;
    const std::size_t count = full_.capture(first, frames, room, cut);
    if (platform_.unwound != nullptr) platform_.unwound(frames, count);
    Counts& mine = counts();
    (count != 0 ? mine.unwound : mine.failed).fetch_add(1, std::memory_order_relaxed);
    return count;
}

StackUnwinder::Counts& StackUnwinder::counts() {
    // Thread descriptors lie at the same place of stacks that are powers of two apart: mix.
    const std::uint64_t mixed = static_cast<std::uint64_t>(pthread_self()) * 0x9e3779b97f4a7c15;
    return counts_[mixed >> 59];
}

void StackUnwinder::publish(trace::Counters& counters) const {
    std::uint64_t walked = 0;
    std::uint64_t unwound = 0;
    std::uint64_t failed = 0;
    for (const Counts& each : counts_) {
        walked += each.walked.load(std::memory_order_relaxed);
        unwound += each.unwound.load(std::memory_order_relaxed);
        failed += each.failed.load(std::memory_order_relaxed);
    }
    counters.stacks_walked.store(walked, std::memory_order_relaxed);
    counters.stacks_unwound.store(unwound, std::memory_order_relaxed);
    counters.stacks_failed.store(failed, std::memory_order_relaxed);
}

} // namespace cachealloc
