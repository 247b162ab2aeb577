#include "shim/host_watch.h"

#include "shim/driver.h"
#include "shim/process.h"
#include "shim/relaxed_capture.h"
#include "shim/submit.h"

#include <optional>

#include <sched.h>

namespace cachealloc::shim {

namespace {

// The last free of this thread that natively would have waited and did not.
struct LastFree {
    ContextPool* context = nullptr;
    Stamp stamp = 0;
    bool fenced = false;         // a fence was recorded at it
    std::uint64_t recorded = 0;  // RecordTimes::now() on its entry
    std::uint32_t submitted = 0; // first submissions after a free, likewise
};
thread_local LastFree t_last{};

// Tells this thread from all others that there ever were.
std::uint64_t thread_serial() {
    static std::atomic<std::uint64_t> threads{0};
    static thread_local std::uint64_t t_serial = 0;
    if (t_serial == 0) t_serial = threads.fetch_add(1, std::memory_order_relaxed) + 1;
    return t_serial;
}

CUstream explicit_handle(CUstream stream, bool per_thread_api) {
    if (stream != nullptr) return stream;
    return per_thread_api ? kStreamPerThread : kStreamLegacy;
}

// Handles of default streams mean another stream to another thread or with another context current.
bool means_it_here(const HostVisible::Stream& stream, CUcontext current) {
    if (stream.thread != 0 && stream.thread != thread_serial()) return false;
    const bool is_default = stream.handle == kStreamLegacy || stream.handle == kStreamPerThread;
    return !is_default || stream.context == current;
}

} // namespace

CUcontext HostWatch::current_context() {
    CUcontext context = nullptr;
    real.cuCtxGetCurrent(&context);
    return context;
}

void HostWatch::pause() {
    sched_yield();
}

std::uint64_t HostWatch::id_of(CUstream stream, bool per_thread_api) const {
    unsigned long long id = 0;
    std::optional<RelaxedCapture> relaxed;
    if (capture_open()) relaxed.emplace();
    if (!real.cuStreamGetId ||
        real.cuStreamGetId(explicit_handle(stream, per_thread_api), &id) != CUDA_SUCCESS) {
        return 0;
    }
    return id;
}

HostVisible::Stream HostWatch::describe(CUstream stream, bool per_thread_api) const {
    HostVisible::Stream described;
    described.id = id_of(stream, per_thread_api);
    described.handle = explicit_handle(stream, per_thread_api);
    if (described.handle == kStreamPerThread) described.thread = thread_serial();
    if (!real.cuStreamGetCtx ||
        real.cuStreamGetCtx(described.handle, &described.context) != CUDA_SUCCESS) {
        described.context = current_context();
    }
    described.owner = process_.contexts.pool_owner(described.context);
    return described;
}

void HostWatch::submitted(CUstream stream, bool per_thread_api) {
    if (capture_open()) {
        const RelaxedCapture relaxed;
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        real.cuStreamIsCapturing(explicit_handle(stream, per_thread_api), &status);
        if (status != CU_STREAM_CAPTURE_STATUS_NONE) return; // a node of a graph to be
    }
    visible.submitted(describe(stream, per_thread_api));
}

bool HostWatch::may_be_host(CUdeviceptr pointer) const {
    if (process_.map.segment_of(pointer) != nullptr) return false;
    unsigned type = 0;
    return !real.cuPointerGetAttribute ||
           real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) !=
               CUDA_SUCCESS ||
           type != CU_MEMORYTYPE_DEVICE;
}

bool HostWatch::may_be_host(CUmemorytype type, CUdeviceptr unified) const {
    if (type == CU_MEMORYTYPE_UNIFIED) return may_be_host(unified);
    return type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_ARRAY;
}

// In this order: a free reads the number first and makes sure of the bit then, so whatever clears
// the bit after that also changes the number.
void HostWatch::any_submission() {
    unwatch_submits(kWatchNext);
    first_submissions_.fetch_add(1, std::memory_order_seq_cst);
}

bool HostWatch::Probe::idle(const HostVisible::Stream& stream) {
    if (!means_it_here(stream, current_context())) return false;
    const GatePass pass(gate_);
    return pass.inside() && real.cuStreamQuery(stream.handle) == CUDA_SUCCESS;
}

// At level `finished` nothing holds up later work on the device, so the host does it.
HostWatch::Plan HostWatch::plan(ContextPool& context) {
    if (process_.options.free_mode == FreeMode::sync) return {FreeKind::waits_on_host, 0};
    if (!on_) return {FreeKind::waits_unnoticed, 0};
    const bool no_barriers = context.pool.fences().level() == OrderLevel::finished;
    if (!no_barriers && !any() && !reachable.any()) return {FreeKind::waits_on_device, 0};
    const HostVisible::Number upto = visible.latest();
    const bool wait = (no_barriers && rule_on(Rule::device_order)) ||
                      (rule_on(Rule::host_visible) &&
                       (reachable.any() || visible.must_wait(context.handle, probe_)));
    return {wait ? FreeKind::waits_on_host : FreeKind::waits_on_device, upto};
}

PoolResult HostWatch::free(ContextPool& context, Block* block, CUdeviceptr pointer) {
    if (block->asynchronous.load(std::memory_order_relaxed)) { // natively it does not wait
        return context.pool.free(block, pointer, FreeKind::does_not_wait);
    }
    const bool fenced = context.pool.fences().level() != OrderLevel::ordered;
    const LastFree here{&context, context.pool.fences().stamp(), fenced, times.now(),
                        first_submissions_.load(std::memory_order_seq_cst)};
    const Plan plan = this->plan(context);
    if (on_ && !fenced && (watched_submits() & kWatchNext) == 0) {
        watch_submits(kWatchNext);
    }
    const PoolResult result = context.pool.free(block, pointer, plan.kind);
    if (result.status != PoolStatus::done) return result;
    if (plan.kind != FreeKind::waits_on_host && !result.waited) {
        if (on_) t_last = here;
        if (plan.kind == FreeKind::waits_on_device && capture_open()) wait_beside_capture(context);
        return result;
    }
    if (t_last.context == &context) t_last = {};
    if (!result.waited) { // a capture has begun meanwhile
        wait_beside_capture(context);
    } else if (plan.upto != 0) {
        visible.settle_owner(context.handle, plan.upto, probe_);
    }
    return result;
}

// The driver's own free of a fresh allocation waits exactly as natively. The caller has been told
// already that it may free.
void HostWatch::wait_beside_capture(ContextPool& context) {
    const Plan plan = this->plan(context);
    if (plan.kind == FreeKind::waits_unnoticed) return;
    if (plan.kind == FreeKind::waits_on_device && !rule_on(Rule::device_order)) return;
    const CurrentContext scope(context.handle);
    const RelaxedCapture relaxed;
    CUdeviceptr memory = 0;
    if (real.cuMemAlloc_v2(&memory, 512) != CUDA_SUCCESS) return; // the device is full
    process_.calls.alloc.fetch_add(1, std::memory_order_relaxed);
    process_.calls.free.fetch_add(1, std::memory_order_relaxed);
    const CUresult waited = real.cuMemFree_v2(memory);
    if (waited == CUDA_SUCCESS && plan.upto != 0) {
        visible.settle_owner(context.handle, plan.upto, probe_);
    }
}

bool HostWatch::recorded_since_free(CUevent event) const {
    return t_last.context != nullptr && times.after(event, t_last.recorded);
}

bool HostWatch::recorded_before_free(CUevent event) const {
    return t_last.context != nullptr && times.before(event, t_last.recorded);
}

bool HostWatch::submitted_since_free() const {
    return first_submissions_.load(std::memory_order_seq_cst) != t_last.submitted;
}

// The question natively waits for nothing, so it must not wait for more than the free would have:
// for its own fence, not a later one.
HostWatch::Answer HostWatch::answer(bool about_a_stream) {
    if (t_last.context == nullptr || process_.contexts.current() != t_last.context ||
        !rule_on(Rule::host_visible)) {
        return Answer::as_it_is;
    }
    Fences& fences = t_last.context->pool.fences();
    const bool fenced = t_last.fenced && fences.covered(t_last.stamp); // not beside a capture
    if (!fenced && about_a_stream && (t_last.fenced || submitted_since_free())) {
        return Answer::as_it_is;
    }
    query_waits_.fetch_add(1, std::memory_order_relaxed);
    if (!fenced) return Answer::when_ready;
    const bool done = fences.host_wait(t_last.stamp).done();
    t_last = {};
    return done ? Answer::after_fence : Answer::as_it_is;
}

} // namespace cachealloc::shim
