#include "shim/captures.h"

#include "shim/driver.h"
#include "shim/process.h"
#include "shim/relaxed_capture.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace cachealloc::shim {

namespace {

struct Origin {
    CUstream stream;
    CUcontext context;
    std::uint64_t thread; // of a per-thread stream: its handle is the same in every thread; else 0
};

std::mutex g_mutex;
std::vector<Origin>& origins() {
    static auto* const list = new std::vector<Origin>(); // immortal: used until the very end
    return *list;
}

std::uint64_t thread_of(CUstream stream) {
    static std::atomic<std::uint64_t> last{0};
    static thread_local const std::uint64_t mine = ++last;
    return stream == kStreamPerThread ? mine : 0;
}

// Removes the origins that `over(origin)` picks; how many there were.
template <class Over>
std::size_t forget(Over over) {
    const std::lock_guard lock(g_mutex);
    return std::erase_if(origins(), over);
}

} // namespace

// The per-thread stream is another one in each context, but an ordinary handle keeps its context
// whatever is current.
CUcontext Captures::context_of(CUstream stream) {
    const RelaxedCapture relaxed;
    CUcontext context = nullptr;
    if (real.cuStreamGetCtx && real.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS) {
        return context;
    }
    return real.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

void Captures::announce() {
    Process* const state = process();
    if (state == nullptr) return;
    state->total_order.leave(); // while an event can still be recorded
    state->gate.begin();
}

void Captures::withdraw() {
    Process* const state = process();
    if (state == nullptr) return;
    state->gate.end();
    if (state->gate.open() != 0) return;
    state->contexts.for_each([](ContextPool& context) { context.pool.captures_ended(); });
}

void Captures::note(CUstream stream, CUcontext context) {
    const std::lock_guard lock(g_mutex);
    origins().push_back({stream, context, thread_of(stream)});
}

void Captures::maybe_ended(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return;
    }
    const std::uint64_t thread = thread_of(stream);
    const CUcontext context = thread != 0 ? context_of(stream) : nullptr;
    if (forget([&](const Origin& origin) {
            return origin.stream == stream && origin.thread == thread &&
                   (thread == 0 || origin.context == context);
        }) != 0) {
        withdraw();
    }
}

void Captures::stream_gone(CUstream stream) {
    if (forget([&](const Origin& origin) { return origin.stream == stream; }) != 0) withdraw();
}

void Captures::context_gone(CUcontext context) {
    for (std::size_t n = forget([&](const Origin& origin) { return origin.context == context; });
         n > 0; --n) {
        withdraw();
    }
}

} // namespace cachealloc::shim
