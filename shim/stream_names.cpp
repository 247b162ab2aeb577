#include "shim/stream_names.h"

#include "shim/driver.h"

#include <atomic>

namespace cachealloc::shim {

namespace {

constexpr std::size_t kRemembered = 8;

struct Known {
    CUstream stream;
    ContextPool* current; // for default streams: their handles mean something only with it
    std::uint64_t streams_ended;
    std::uint64_t contexts_ended;
    StreamName name;
};
thread_local Known t_known[kRemembered];

std::atomic<std::uint64_t> g_streams_ended{1};

bool is_default(CUstream stream) {
    return stream == kStreamLegacy || stream == kStreamPerThread;
}

// A context converted from a green one has streams of its own, but the primary's memory: its
// streams are nobody's here.
CUresult ask(Process& process, CUstream stream, ContextPool* current, StreamName& name) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult valid = real.cuStreamIsCapturing(stream, &status);
    if (valid != CUDA_SUCCESS) return valid;
    CUcontext context = nullptr;
    unsigned long long id = 0;
    if (!real.cuStreamGetId || real.cuStreamGetId(stream, &id) != CUDA_SUCCESS ||
        real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS || context == nullptr) {
        return CUDA_SUCCESS;
    }
    ContextPool* const owner = current != nullptr ? current : process.contexts.of(context);
    if (owner == nullptr || owner->handle != context) return CUDA_SUCCESS;
    name = {owner, id, process.contexts.is_primary(*owner)};
    return CUDA_SUCCESS;
}

} // namespace

CUresult name_stream(Process& process, CUstream stream, StreamName& name) {
    const auto value = reinterpret_cast<std::uintptr_t>(stream);
    const std::uint64_t streams_ended = g_streams_ended.load(std::memory_order_acquire);
    const std::uint64_t contexts_ended = process.contexts.generation();
    ContextPool* const current = is_default(stream) ? process.contexts.current() : nullptr;
    Known& known = t_known[(value ^ value >> 4 ^ value >> 8) % kRemembered];
    if (known.stream != stream || known.current != current ||
        known.streams_ended != streams_ended || known.contexts_ended != contexts_ended) {
        StreamName asked;
        const CUresult valid = ask(process, stream, current, asked);
        if (valid != CUDA_SUCCESS) return valid;
        known = {stream, current, streams_ended, contexts_ended, asked};
    }
    name = known.name;
    if (!rule_on(Rule::stream_identity)) name.id = value;
    return CUDA_SUCCESS;
}

void stream_is_ending() {
    g_streams_ended.fetch_add(1, std::memory_order_acq_rel);
}

} // namespace cachealloc::shim
