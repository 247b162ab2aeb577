#include "shim/submit.h"

#include "shim/driver.h"
#include "shim/entry_counts.h"
#include "shim/process.h"
#include "shim/resolve.h"

#include <array>
#include <atomic>
#include <string_view>

extern "C" {
// Read by submit_stubs.S.
constinit std::atomic<std::uint32_t> cachealloc_submit_watch{
#ifdef CACHEALLOC_TEST_SWITCHES
    cachealloc::shim::kWatchCount |
#endif
    cachealloc::shim::kWatchUnbound | cachealloc::shim::kWatchPerThread};
constinit std::atomic<void*> cachealloc_submit_target[cachealloc::shim::kSubmitCount]{};
}

namespace cachealloc::shim {

namespace {

struct Row {
    Entry entry;
    Hook hook;
    bool per_thread_api;
    std::int8_t stream;
};

constexpr bool per_thread_name(std::string_view name) {
    return name.ends_with("_ptsz") || name.ends_with("_ptds");
}

constexpr Row kRows[] = {
#define PASS(name, kind, stream)
#define CALL(name, kind, stream, params)
#define HOOK(name, kind, stream, params, args)
#define SUBMIT(name, kind, stream)                                                                 \
    {Entry::name, Hook::name, per_thread_name(#name), stream_##stream},
#include "shim/entry_points.def"
#undef PASS
#undef CALL
#undef HOOK
#undef SUBMIT
};
static_assert(std::size(kRows) == kSubmitCount);

// What a linked program gets in a process without a driver.
CUresult not_initialized() {
    return CUDA_ERROR_NOT_INITIALIZED;
}

void* find_target(const Row& row, const void* return_address, std::atomic<void*>& target) {
    void* direct = nullptr;
    switch (enter_unbound(row.hook, return_address, &direct)) {
    case Route::hook:
        return target.load(std::memory_order_acquire);
    case Route::direct:
        return direct;
    case Route::missing:
        break;
    }
    return reinterpret_cast<void*>(not_initialized);
}

} // namespace

void watch_submits(std::uint32_t reasons) {
    cachealloc_submit_watch.fetch_or(reasons, std::memory_order_seq_cst);
}

void unwatch_submits(std::uint32_t reasons) {
    cachealloc_submit_watch.fetch_and(~reasons, std::memory_order_seq_cst);
}

void set_submit_target(Submit row, void* function) {
    cachealloc_submit_target[static_cast<std::size_t>(row)].store(function,
                                                                  std::memory_order_release);
}

bool has_per_thread_api(Entry entry) {
    return per_thread_name(entry_name(entry));
}

void before_submit(const SubmitCall& call) {
    Process* const state = process();
    if (state == nullptr) return;
    const std::uint32_t watched = watched_submits();
    if ((watched & kWatchPerThread) != 0) {
        // Where the stream hides in a structure it may be any.
        if (entry_stream(call.entry) == kStreamInStruct && call.arguments != nullptr) {
            state->total_order.leave();
        } else if (is_per_thread(call.stream, call.per_thread_api)) {
            state->total_order.per_thread_stream_used();
        }
    }
    if ((watched & kWatchNewStreams) != 0) state->total_order.first_work(call.stream);
    if ((watched & kWatchNext) != 0) state->host_watch.any_submission();
    if ((watched & kWatchUse) != 0 &&
        state->stream_use.submitted(
            is_per_thread(call.stream, call.per_thread_api) ? kStreamPerThread : call.stream)) {
        unwatch_submits(kWatchUse);
    }
}

bool is_last_stream(CUstream stream) {
    const Process* const state = process();
    return state != nullptr && state->stream_use.is_last(stream);
}

namespace {

__attribute__((noinline)) void* submit_with_care(const Row& row, const SubmitCall& call,
                                                 std::atomic<void*>& target) {
    void* function = target.load(std::memory_order_acquire);
    if (function == nullptr) {
        function = find_target(row, reinterpret_cast<const void*>(call.arguments[7]), target);
        if (target.load(std::memory_order_acquire) == nullptr) return function;
    }
    count_entry(row.entry);
    before_submit(call);
    return function;
}

} // namespace
} // namespace cachealloc::shim

// What a stub calls: the function to jump to.
extern "C" __attribute__((used)) void* cachealloc_submit(const std::uintptr_t* arguments,
                                                         std::uint32_t number) {
    using namespace cachealloc::shim;
    const Row& row = kRows[number];
    std::atomic<void*>& target = cachealloc_submit_target[number];
    SubmitCall call{row.entry, row.per_thread_api, nullptr, arguments};
    if (row.stream >= 0) {
        call.stream =
            reinterpret_cast<CUstream>(call.argument(static_cast<std::size_t>(row.stream)));
    }
    if (row.stream != kStreamInStruct &&
        is_nothing_new(watched_submits(), call.stream, row.per_thread_api)) {
        return target.load(std::memory_order_acquire);
    }
    return submit_with_care(row, call, target);
}
