// cuLaunchKernelEx: the stream is in the configuration, and so is the permission to start before
// the kernel in front of it on the stream has ended (programmatic dependent launch).
//
// Such a kernel may meet a block's former users although it comes later on their stream: K0 uses x,
// cudaFree(x), cudaMalloc gives x again, K1 may start while K0 still runs. Natively the free would
// have waited. So a launch that follows an allocation or a free gives the permission up: without
// the attribute it starts behind all that came before, and a kernel's wait for its predecessor
// returns at once. An event wait between the two would not do: on an H200 (CUDA 13.0) K1 started
// early all the same, behind a wait for an event of its own stream or of another, idle one.
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/submit.h"

#include <vector>

namespace cachealloc::shim {

namespace {

bool may_overlap(const CUlaunchAttribute& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
}

bool may_overlap(const CUlaunchConfig& config) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        if (may_overlap(config.attrs[i])) return true;
    }
    return false;
}

// Some launches record an event: it stands for something else from then on.
void note_events(const CUlaunchConfig& config) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const CUlaunchAttributeID id = config.attrs[i].id;
        if (id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
            id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            continue;
        }
        Process* const state = process();
        if (state != nullptr) state->host_watch.events_recorded_unseen();
    }
}

// Whether the launch only becomes a node of a graph: those keep their edges as the program wants
// them, since nothing is handed out to a graph while it runs.
bool is_captured(const Process& state, CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return state.capturing() &&
           real.cuStreamIsCapturing(per_thread ? kStreamPerThread : stream, &status) ==
               CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The launch without the permission, if the pool has changed since the stream was put in order.
template <class Launch>
CUresult launch_in_order(Process& state, const CUlaunchConfig& config, bool per_thread,
                         Launch call) {
    ContextPool* const context = state.contexts.current();
    if (context == nullptr) return call(&config);
    static thread_local char t_self;
    const OverlapMarks::Key key{config.hStream, per_thread ? &t_self : nullptr};
    const std::uint64_t changes = context->pool.changes();
    if (context->overlaps.in_order(key, changes)) return call(&config);
    std::vector<CUlaunchAttribute> attributes(config.attrs, config.attrs + config.numAttrs);
    std::erase_if(attributes, [](const CUlaunchAttribute& one) { return may_overlap(one); });
    CUlaunchConfig ordered = config;
    ordered.attrs = attributes.data();
    ordered.numAttrs = static_cast<unsigned>(attributes.size());
    const CUresult result = call(&ordered);
    if (result == CUDA_SUCCESS) context->overlaps.launched(key, changes);
    return result;
}

template <class Launch>
CUresult launch(Entry entry, const CUlaunchConfig* config, bool per_thread_api, Launch call) {
    if (config == nullptr) return call(config);
    look_at_submit(entry, config->hStream, per_thread_api);
    if (config->numAttrs == 0) return call(config);
    note_events(*config);
    if (!may_overlap(*config)) return call(config);
    Process* const state = process();
    if (state == nullptr || !rule_on(Rule::programmatic)) return call(config);
    const bool per_thread = is_per_thread(config->hStream, per_thread_api);
    if (is_captured(*state, config->hStream, per_thread)) return call(config);
    return launch_in_order(*state, *config, per_thread, call);
}

} // namespace

CUresult hook_cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                               void** extra) {
    return launch(Entry::cuLaunchKernelEx, config, false, [&](const CUlaunchConfig* chosen) {
        return real.cuLaunchKernelEx(chosen, function, parameters, extra);
    });
}

CUresult hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function,
                                    void** parameters, void** extra) {
    return launch(Entry::cuLaunchKernelEx_ptsz, config, true, [&](const CUlaunchConfig* chosen) {
        return real.cuLaunchKernelEx_ptsz(chosen, function, parameters, extra);
    });
}

} // namespace cachealloc::shim
