// cuLaunchKernelEx: the stream is in the configuration, and so is the permission to start before
// the kernel in front of it on the stream has ended (programmatic dependent launch).
//
// Such a kernel may meet a block's former users although it comes later on their stream: K0 uses x,
// cudaFree(x), cudaMalloc gives x again, K1 may start while K0 still runs. Natively the free would
// have waited. So a launch that follows a hand-out gives the permission up: without the attribute
// it starts behind all that came before, and a kernel's wait for its predecessor returns at once.
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/submit.h"

#include <array>

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

// Whether the current context's pool has handed anything out since the last such launch saw it.
bool handed_out_since(Process& state) {
    ContextPool* const context = state.contexts.current();
    if (context == nullptr) return false;
    const std::uint64_t now = context->pool.hand_outs();
    return context->overlap_seen.exchange(now, std::memory_order_acq_rel) != now;
}

template <class Launch>
CUresult launch(Entry entry, const CUlaunchConfig* config, bool per_thread_api, Launch call) {
    Process* const state = process();
    if (state == nullptr || config == nullptr) return call(config);
    if ((watched_submits() & (kWatchPerThread | kWatchUse | kWatchAllSubmits)) != 0) {
        before_submit({entry, Effect::work, per_thread_api, config->hStream, nullptr});
    }
    constexpr unsigned kMost = 32; // cuda.h 13.0 knows 17 kinds
    if (config->numAttrs == 0 || config->numAttrs > kMost || !may_overlap(*config) ||
        state->capturing() || !rule_on(Rule::programmatic) || !handed_out_since(*state)) {
        return call(config);
    }
    std::array<CUlaunchAttribute, kMost> attributes;
    CUlaunchConfig ordered = *config;
    ordered.attrs = attributes.data();
    ordered.numAttrs = 0;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        if (!may_overlap(config->attrs[i])) attributes[ordered.numAttrs++] = config->attrs[i];
    }
    return call(&ordered);
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
