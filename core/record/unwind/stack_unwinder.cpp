#include "core/record/unwind/stack_unwinder.h"

#include "core/record/unwind/stack_bounds.h"

#include <algorithm>

#include <pthread.h>

namespace cachealloc {

namespace {

UnwindPlatform chosen(UnwinderChoice choice, UnwindPlatform platform) {
    if (choice != UnwinderChoice::automatic) platform.find_object = nullptr;
    if (choice == UnwinderChoice::gcc) platform.unw_backtrace = nullptr;
    return platform;
}

} // namespace

StackUnwinder::StackUnwinder(UnwinderChoice choice, const UnwindPlatform& platform, bool check)
    : platform_(chosen(choice, platform)), check_(check) {}

// Not inlined: its own frame, which __builtin_frame_address makes the compiler set up with rbp, is
// where the stack is entered: [rbp] holds the caller's rbp, [rbp + 8] the return address.
[[gnu::noinline]] std::size_t StackUnwinder::capture(trace::Frame* frames, std::size_t room,
                                                     bool& cut) {
    const auto* const frame = static_cast<const std::uintptr_t*>(__builtin_frame_address(0));
    const FrameWalker::Start start{frame[1], reinterpret_cast<std::uintptr_t>(frame + 2), frame[0]};
    cut = false;
    if (room == 0) return 0;
    Counts& mine = counts();
    if (platform_.find_object != nullptr && unloading_.load(std::memory_order_acquire) == 0) {
        const std::uint16_t generation = generation_.load(std::memory_order_acquire);
        const StackBounds stack = stack_bounds();
        if (stack.hold(start.rsp)) {
            const std::size_t count = walker_.walk(start, stack, generation, frames, room, cut);
            if (count != FrameWalker::kGaveUp) {
                mine.walked.fetch_add(1, std::memory_order_relaxed);
                if (check_) compare(start.pc, frames, count, cut, room);
                return count;
            }
        }
    }
    const std::size_t count = full_.capture(start.pc, frames, room, cut);
    if (platform_.unwound != nullptr) platform_.unwound(frames, count);
    if (count != 0) mine.unwound.fetch_add(1, std::memory_order_relaxed);
    return count;
}

// Beyond FullUnwinder::kMaxFrames nothing is compared.
void StackUnwinder::compare(std::uintptr_t first, const trace::Frame* frames, std::size_t count,
                            bool cut, std::size_t room) {
    std::array<trace::Frame, FullUnwinder::kMaxFrames> wanted;
    bool wanted_cut = false;
    const std::size_t most = std::min(room, wanted.size());
    const std::size_t wanted_count =
        full_.capture_by_libgcc(first, wanted.data(), most, wanted_cut);
    const bool same = count == wanted_count && cut == wanted_cut &&
                      std::equal(frames, frames + count, wanted.data());
    if (!same) differed_.fetch_add(1, std::memory_order_relaxed);
}

void StackUnwinder::after_unloading(bool unloaded) {
    if (unloaded) {
        std::uint16_t now = generation_.load(std::memory_order_relaxed);
        std::uint16_t next = 0;
        do {
            next = static_cast<std::uint16_t>(now + 1);
            if (next == 0) {
                walker_.forget_rules(); // the numbers begin again
                next = 1;
            }
        } while (!generation_.compare_exchange_weak(now, next));
    }
    unloading_.fetch_sub(1);
}

StackUnwinder::Counts& StackUnwinder::counts() {
    // Thread descriptors lie at the same place of stacks that are powers of two apart: mix.
    const std::uint64_t mixed = static_cast<std::uint64_t>(pthread_self()) * 0x9e3779b97f4a7c15;
    return counts_[mixed >> 59];
}

void StackUnwinder::publish(trace::Counters& counters) const {
    std::uint64_t walked = 0;
    std::uint64_t unwound = 0;
    for (const Counts& each : counts_) {
        walked += each.walked.load(std::memory_order_relaxed);
        unwound += each.unwound.load(std::memory_order_relaxed);
    }
    counters.stacks_walked.store(walked, std::memory_order_relaxed);
    counters.stacks_unwound.store(unwound, std::memory_order_relaxed);
    counters.stacks_differed.store(differed_.load(std::memory_order_relaxed),
                                   std::memory_order_relaxed);
}

} // namespace cachealloc
