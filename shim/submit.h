// Calls that hand work to the device, seen without knowing their prototypes.
//
// Each SUBMIT row of the table has a stub in assembly (submit_stubs.S) that jumps to the driver at
// once while nobody watches; else it calls before_submit() with the saved arguments first. All
// arguments of these functions are integers or pointers, so six registers and the stack hold them.
//
// Invariant: what before_submit() does takes effect before the work is submitted, never after.
#pragma once

#include "shim/cuda_types.h"
#include "shim/entry_points.h"

#include <atomic>
#include <cstdint>

namespace cachealloc::shim {

// One number per SUBMIT row, in the table's order: the stubs' order too.
enum class Submit : std::uint16_t {
#define PASS(name, kind, stream)
#define CALL(name, kind, stream, params)
#define HOOK(name, kind, stream, params, args)
#define SUBMIT(name, kind, stream) name,
#include "shim/entry_points.def"
#undef PASS
#undef CALL
#undef HOOK
#undef SUBMIT
    none, // also the number of rows
};
inline constexpr std::size_t kSubmitCount = static_cast<std::size_t>(Submit::none);

// A call that is about to go to the driver.
struct SubmitCall {
    Entry entry;
    bool per_thread_api; // a _ptsz or _ptds name: the null stream is the per-thread one
    CUstream stream;     // as passed; null where the call has an implicit default stream
    const std::uintptr_t* arguments;

    // Argument `index` (0, 1, ..) of the call.
    std::uintptr_t argument(std::size_t index) const {
        // Six in registers; the row's number and the return address lie between them and the rest.
        return arguments[index < 6 ? index : index + 2];
    }
};

// Whether the null stream means the calling thread's own to this entry point (_ptsz, _ptds).
bool has_per_thread_api(Entry entry);

// Whether this handle names the calling thread's own default stream.
inline bool is_per_thread(CUstream stream, bool per_thread_api) {
    return stream == kStreamPerThread || (per_thread_api && stream == nullptr);
}

// The reasons to look at submissions; bits of one word that every stub tests.
inline constexpr std::uint32_t kWatchUnbound = 1;     // no driver has been taken over yet
inline constexpr std::uint32_t kWatchPerThread = 2;   // a thread's first use of its default stream
inline constexpr std::uint32_t kWatchUse = 4;         // which streams are in use
inline constexpr std::uint32_t kWatchCount = 8;       // a test counts
inline constexpr std::uint32_t kWatchNewStreams = 16; // new streams get their first work
inline constexpr std::uint32_t kWatchNext = 32;       // the first submission after a free

extern "C" std::atomic<std::uint32_t> cachealloc_submit_watch; // also read by submit_stubs.S

// Sets or clears reasons. Thread-safe. A submission that another thread is making at this very
// moment may or may not be seen.
void watch_submits(std::uint32_t reasons);
void unwatch_submits(std::uint32_t reasons);
inline std::uint32_t watched_submits() {
    return cachealloc_submit_watch.load(std::memory_order_relaxed);
}

// For the binding alone: where the row's stub jumps. Null if the driver lacks the function.
void set_submit_target(Submit row, void* function);

// What every submission goes through while it is watched, hooks with a prototype included.
void before_submit(const SubmitCall& call);

// Whether the use of streams is as it was: work on `stream` again.
bool is_last_stream(CUstream stream);

// Whether nobody would do anything about work on `stream`, as about nearly every launch of a
// program that launches a million times. `watched`: the reasons to look at it.
inline bool is_nothing_new(std::uint32_t watched, CUstream stream, bool per_thread_api) {
    if ((watched & ~(kWatchPerThread | kWatchUse)) != 0) return false;
    if (watched == 0) return true;
    if (is_per_thread(stream, per_thread_api)) return false;
    return (watched & kWatchUse) == 0 || is_last_stream(stream);
}

// For hooks with a prototype whose stream is an argument: before_submit(), unless nobody cares.
inline void look_at_submit(Entry entry, CUstream stream, bool per_thread_api) {
    if (is_nothing_new(watched_submits(), stream, per_thread_api)) return;
    before_submit({entry, per_thread_api, stream, nullptr});
}

} // namespace cachealloc::shim
