// Order between host, streams and events: what a free may have to wait for is known from these
// calls, and what a free has not waited for comes out here (host_watch.h).
//
// They are also where a program learns of a fault: from then on its allocations fail natively, so
// the pool serves nothing more.
#include "shim/driver.h"
#include "shim/process.h"

namespace cachealloc::shim {

namespace {

CUresult noted(CUresult result) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return result;
    Process* const state = process();
    if (state == nullptr || translate(result).status != OrderStatus::lost) return result;
    // A wrong handle is no fault: ask the context itself.
    if (ContextPool* const context = state->contexts.current()) {
        if (!state->capturing()) context->pool.check_for_fault();
    }
    return result;
}

template <class Call>
CUresult synchronize_context(CUcontext context, Call call) {
    Process* const state = process();
    return state == nullptr ? call() : noted(state->host_watch.context_call(context, call));
}

template <class Call>
CUresult synchronize_stream(CUstream stream, bool per_thread_api, Call call) {
    Process* const state = process();
    if (state == nullptr) return call();
    return noted(state->host_watch.stream_call(stream, per_thread_api, true, call));
}

template <class Call>
CUresult query_stream(CUstream stream, bool per_thread_api, Call call) {
    Process* const state = process();
    if (state == nullptr) return call();
    const auto ask = [&] {
        return noted(state->host_watch.stream_call(stream, per_thread_api, false, call));
    };
    const CUresult result = ask();
    return result == CUDA_ERROR_NOT_READY ? state->host_watch.stream_not_ready(ask) : result;
}

template <class Call>
CUresult record(CUevent event, CUstream stream, bool per_thread_api, Call call) {
    Process* const state = process();
    if (state == nullptr) return call();
    return state->host_watch.record_call(event, stream, per_thread_api, call);
}

// An event is recorded, or destroyed, in a way that says nothing about a stream.
template <class Call>
CUresult forget(CUevent event, Call call) {
    Process* const state = process();
    if (state != nullptr && state->host_watch.on()) {
        state->host_watch.times.recording(event);
        if (state->host_watch.any()) state->host_watch.visible.forget_event(event);
    }
    return call();
}

template <class Call>
CUresult wait_event(CUstream stream, bool per_thread_api, CUevent event, Call call) {
    Process* const state = process();
    if (state == nullptr) return call();
    return state->host_watch.wait_event_call(stream, per_thread_api, event, call);
}

template <class Call>
CUresult elapsed(CUevent start, CUevent end, Call call) {
    const CUresult result = call();
    Process* const state = process();
    if (result != CUDA_ERROR_NOT_READY || state == nullptr) return result;
    return state->host_watch.events_not_ready({start, end}, call);
}

} // namespace

CUresult hook_cuCtxSynchronize() {
    return synchronize_context(nullptr, [] { return real.cuCtxSynchronize(); });
}

CUresult hook_cuCtxSynchronize_v2(CUcontext context) {
    return synchronize_context(context, [&] { return real.cuCtxSynchronize_v2(context); });
}

CUresult hook_cuStreamSynchronize(CUstream stream) {
    return synchronize_stream(stream, false, [&] { return real.cuStreamSynchronize(stream); });
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream stream) {
    return synchronize_stream(stream, true, [&] { return real.cuStreamSynchronize_ptsz(stream); });
}

CUresult hook_cuStreamQuery(CUstream stream) {
    return query_stream(stream, false, [&] { return real.cuStreamQuery(stream); });
}

CUresult hook_cuStreamQuery_ptsz(CUstream stream) {
    return query_stream(stream, true, [&] { return real.cuStreamQuery_ptsz(stream); });
}

CUresult hook_cuEventSynchronize(CUevent event) {
    Process* const state = process();
    const auto call = [&] { return real.cuEventSynchronize(event); };
    return state == nullptr ? call() : noted(state->host_watch.event_call(event, true, call));
}

CUresult hook_cuEventQuery(CUevent event) {
    Process* const state = process();
    if (state == nullptr) return real.cuEventQuery(event);
    const auto ask = [&] {
        return noted(
            state->host_watch.event_call(event, false, [&] { return real.cuEventQuery(event); }));
    };
    const CUresult result = ask();
    return result == CUDA_ERROR_NOT_READY ? state->host_watch.events_not_ready({event}, ask)
                                          : result;
}

CUresult hook_cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return elapsed(start, end, [&] { return real.cuEventElapsedTime(milliseconds, start, end); });
}

CUresult hook_cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return elapsed(start, end,
                   [&] { return real.cuEventElapsedTime_v2(milliseconds, start, end); });
}

CUresult hook_cuEventRecord(CUevent event, CUstream stream) {
    return record(event, stream, false, [&] { return real.cuEventRecord(event, stream); });
}

CUresult hook_cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return record(event, stream, true, [&] { return real.cuEventRecord_ptsz(event, stream); });
}

CUresult hook_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, false,
                  [&] { return real.cuEventRecordWithFlags(event, stream, flags); });
}

CUresult hook_cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, true,
                  [&] { return real.cuEventRecordWithFlags_ptsz(event, stream, flags); });
}

CUresult hook_cuCtxRecordEvent(CUcontext context, CUevent event) {
    return forget(event, [&] { return real.cuCtxRecordEvent(context, event); });
}

CUresult hook_cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event) {
    return forget(event, [&] { return real.cuGreenCtxRecordEvent(context, event); });
}

CUresult hook_cuEventDestroy(CUevent event) {
    return forget(event, [&] { return real.cuEventDestroy(event); });
}

CUresult hook_cuEventDestroy_v2(CUevent event) {
    return forget(event, [&] { return real.cuEventDestroy_v2(event); });
}

CUresult hook_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    return wait_event(stream, false, event,
                      [&] { return real.cuStreamWaitEvent(stream, event, flags); });
}

CUresult hook_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
    return wait_event(stream, true, event,
                      [&] { return real.cuStreamWaitEvent_ptsz(stream, event, flags); });
}

// Another process may record the event from now on.
CUresult hook_cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
    if (Process* const state = process()) state->host_watch.events_are_shared();
    return real.cuIpcGetEventHandle(handle, event);
}

CUresult hook_cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
    if (Process* const state = process()) state->host_watch.events_are_shared();
    return real.cuIpcOpenEventHandle(event, handle);
}

} // namespace cachealloc::shim
