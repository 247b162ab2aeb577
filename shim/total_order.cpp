#include "shim/total_order.h"

#include "shim/cuda_source.h"
#include "shim/driver.h"
#include "shim/escapes.h"
#include "shim/foreign_writers.h"
#include "shim/process.h"
#include "shim/relaxed_capture.h"
#include "shim/submit.h"

#include <algorithm>
#include <vector>

namespace cachealloc::shim {

namespace {
thread_local bool t_per_thread_joined = false;
}

void TotalOrder::stream_created(CUstream stream, bool blocking) {
    if (blocking && !any_blocking_.exchange(true, std::memory_order_acq_rel)) return;
    leave();
    if (!pending_.load(std::memory_order_acquire)) return;
    if (unseen_work_.load(std::memory_order_acquire) || unseen_submitters_present() ||
        escapes_present()) {
        join(stream);
        return;
    }
    const std::lock_guard lock(mutex_);
    newcomers_.push_back(stream);
    watch_submits(kWatchNewStreams);
}

// Streams that never get any work must not keep everybody looking for it.
void TotalOrder::first_work(CUstream stream) {
    const std::lock_guard lock(mutex_);
    if (++looks_ % kLooksPerQuestion == 0) ask();
    if (!pending_.load(std::memory_order_acquire)) {
        newcomers_.clear();
    } else if (const auto found = std::find(newcomers_.begin(), newcomers_.end(), stream);
               found != newcomers_.end() && join(stream)) {
        newcomers_.erase(found);
    }
    if (newcomers_.empty()) unwatch_submits(kWatchNewStreams);
}

// Until the event has finished: what was handed out without a fence may be used on the legacy
// stream next, while its former user is on the stream that ends.
void TotalOrder::stream_ending(CUstream stream) {
    if (!may_wait()) return;
    {
        const std::lock_guard lock(mutex_);
        if (std::erase(newcomers_, stream) != 0) return; // no work yet; its handle may come back
    }
    const RelaxedCapture relaxed;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) return;
    if (status == CU_STREAM_CAPTURE_STATUS_NONE &&
        real.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) {
        return;
    }
    leave();
    CUcontext context = nullptr;
    if (real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return;
    const CurrentContext scope(context);
    join(kStreamLegacy);
}

void TotalOrder::per_thread_stream_used() {
    if (t_per_thread_joined) return;
    leave();
    t_per_thread_joined = join(kStreamPerThread);
}

void TotalOrder::leave_to_unseen_work() {
    leave();
    unseen_work_.store(true, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    std::erase_if(newcomers_, [this](CUstream stream) { return join(stream); });
}

void TotalOrder::leave() {
    if (left_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (left_.load(std::memory_order_relaxed)) return;
    broken_.store(true, std::memory_order_seq_cst); // pools made from now on never rely on it
    std::vector<ContextPool*> ordered;
    process_.contexts.for_each([&](ContextPool& context) {
        if (context.pool.leave_ordered()) ordered.push_back(&context);
    });
    for (ContextPool* const context : ordered) { // one at most: several are never ordered
        event_ = context->order.record_once();
        if (event_ != nullptr) {
            pending_.store(true, std::memory_order_release);
        } else {
            context->order.synchronize(); // no event to be had
        }
        context->order.make_events_ahead();
    }
    watch_submits(kWatchUse);
    if (event_ == nullptr) unwatch_submits(kWatchPerThread);
    left_.store(true, std::memory_order_release);
}

// Whether the event has finished by now.
void TotalOrder::ask() {
    if (!pending_.load(std::memory_order_acquire)) return;
    const RelaxedCapture relaxed;
    if (real.cuEventQuery(event_) != CUDA_SUCCESS) return;
    pending_.store(false, std::memory_order_release);
    unwatch_submits(kWatchPerThread);
}

// Makes `stream` wait for the event, if there is still something to wait for. False while a capture
// is open on it: what it captures runs where the graph is launched.
bool TotalOrder::join(CUstream stream) {
    ask();
    if (!pending_.load(std::memory_order_acquire)) return true;
    const RelaxedCapture relaxed;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE) { // or, of the legacy stream, another's capture
        return false;
    }
    if (rule_on(Rule::ordered_exit)) real.cuStreamWaitEvent(stream, event_, 0);
    return true;
}

} // namespace cachealloc::shim
