#include "shim/total_order.h"

#include "shim/driver.h"
#include "shim/process.h"
#include "shim/relaxed_capture.h"
#include "shim/submit.h"

#include <vector>

namespace cachealloc::shim {

namespace {
thread_local bool t_per_thread_joined = false;
}

void TotalOrder::stream_created(CUstream stream, bool blocking) {
    if (blocking && !any_blocking_.exchange(true, std::memory_order_acq_rel)) return;
    leave();
    join(stream);
}

void TotalOrder::per_thread_stream_used() {
    if (t_per_thread_joined) return;
    leave();
    join(kStreamPerThread);
    t_per_thread_joined = true;
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
    }
    watch_submits(kWatchUse);
    if (event_ == nullptr) unwatch_submits(kWatchPerThread);
    left_.store(true, std::memory_order_release);
}

// Beside a capture of this or another thread as well: the stream is new to work, so it is in none.
void TotalOrder::join(CUstream stream) {
    if (!pending_.load(std::memory_order_acquire)) return;
    const RelaxedCapture relaxed;
    if (real.cuEventQuery(event_) == CUDA_SUCCESS) {
        pending_.store(false, std::memory_order_release);
        unwatch_submits(kWatchPerThread);
        return;
    }
    if (rule_on(Rule::ordered_exit)) real.cuStreamWaitEvent(stream, event_, 0);
}

} // namespace cachealloc::shim
