#include "core/record/unwind/full_unwinder.h"

#include <algorithm>

#include <unwind.h>

namespace cachealloc {

namespace {

// Frames of the unwinder and of this class that may lie before the first one wanted.
constexpr std::size_t kInnerFrames = 24;
// One more than can be kept, to know whether the stack goes on.
constexpr std::size_t kRaw = FullUnwinder::kMaxFrames + kInnerFrames + 1;

// unw_backtrace() is not re-entrant: a signal handler that unwinds while its thread is at it
// crashes when the thread's cache grows (libunwind #425).
[[gnu::tls_model("initial-exec")]] thread_local bool t_in_libunwind = false;

struct Sink {
    void** frames;
    std::size_t count;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* argument) {
    Sink& sink = *static_cast<Sink*>(argument);
    if (sink.count == kRaw) return _URC_END_OF_STACK;
    sink.frames[sink.count++] = reinterpret_cast<void*>(_Unwind_GetIP(context));
    return _URC_NO_REASON;
}

} // namespace

std::size_t FullUnwinder::capture(std::uintptr_t first, trace::Frame* frames, std::size_t room,
                                  bool& cut) const {
    if (platform_.unw_backtrace == nullptr || t_in_libunwind ||
        (platform_.libunwind_is_sound != nullptr && !platform_.libunwind_is_sound()))
        return capture_by_libgcc(first, frames, room, cut);
    void* raw[kRaw];
    t_in_libunwind = true;
    const int count = platform_.unw_backtrace(raw, static_cast<int>(kRaw));
    t_in_libunwind = false;
    if (count <= 0) return capture_by_libgcc(first, frames, room, cut);
    return keep(raw, static_cast<std::size_t>(count), first, frames, room, cut);
}

std::size_t FullUnwinder::capture_by_libgcc(std::uintptr_t first, trace::Frame* frames,
                                            std::size_t room, bool& cut) const {
    void* raw[kRaw];
    Sink sink{raw, 0};
    _Unwind_Backtrace(note_frame, &sink);
    return keep(raw, sink.count, first, frames, room, cut);
}

std::size_t FullUnwinder::keep(void* const* raw, std::size_t count, std::uintptr_t first,
                               trace::Frame* frames, std::size_t room, bool& cut) const {
    // Both unwinders end some stacks with a frame at address zero.
    while (count != 0 && raw[count - 1] == nullptr)
        --count;
    void* const* const end = raw + count;
    void* const* from =
        std::find(raw, raw + std::min(count, kInnerFrames), reinterpret_cast<void*>(first));
    if (from == raw + kInnerFrames || from == end) from = raw;
    const auto own = [this](const void* frame) {
        const auto address = reinterpret_cast<std::uintptr_t>(frame);
        return address >= platform_.own_start && address < platform_.own_end;
    };
    from = std::find_if_not(from, end, own);
    const std::size_t kept = std::min(static_cast<std::size_t>(end - from), room);
    std::transform(from, from + kept, frames,
                   [](const void* frame) { return reinterpret_cast<trace::Frame>(frame); });
    cut = from + kept != end;
    return kept;
}

} // namespace cachealloc
