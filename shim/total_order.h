// Whether all work of the process is totally ordered, so that freed memory needs no fence, and the
// way out of that state.
//
// Invariant. While it holds, work exists only on the legacy stream and on at most one blocking
// stream, which wait for each other: whatever is submitted later runs later. Before a second
// unordered stream can get its first work (it is being created; a per-thread default stream is used
// for the first time; a capture begins), first every pool stops to rely on it, then one event is
// recorded over all work so far, and until that event has finished each such stream waits for it
// before its first work. Not before: natively an empty stream answers a query with "done".
// So what was freed and handed out without a fence is never met by work that does not come later.
// A free that raced with the change looked at the level before the event was recorded, so the event
// covers the users of its block too.
//
// A blocking stream that is destroyed while its work runs counts too: nothing says that the legacy
// stream waits for the work of a stream that is gone.
//
// Nothing waits where the event has finished already, as in programs that make their streams at
// start or behind a synchronisation.
#pragma once

#include "shim/cuda_types.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace cachealloc::shim {

struct Process;

class TotalOrder {
  public:
    explicit TotalOrder(Process& process) : process_(process) {}

    // False from the moment on in which work may be unordered; never true again.
    bool holds() const { return !broken_.load(std::memory_order_seq_cst); }

    // Whether anything still depends on it: it holds, or streams yet to come wait for the event.
    bool may_wait() const { return holds() || pending_.load(std::memory_order_acquire); }

    // The driver has just made `stream`, and the program does not know it yet.
    void stream_created(CUstream stream, bool blocking);

    // The program is about to destroy `stream`.
    void stream_ending(CUstream stream);

    // Work is about to be submitted to `stream`, while kWatchNewStreams is on.
    void first_work(CUstream stream);

    // The calling thread is about to use its default stream.
    void per_thread_stream_used();

    // Work may be submitted from now on that nothing here sees or orders. Idempotent, thread-safe;
    // after its return the event is recorded.
    void leave();

    // Streams may get work from now on that no hook sees: those that still have to wait do so now.
    void leave_to_unseen_work();

  private:
    static constexpr std::uint64_t kLooksPerQuestion = 64; // a query costs 0.4 us

    bool join(CUstream stream);
    void ask();

    Process& process_;
    std::atomic<bool> broken_{false};
    std::atomic<bool> left_{false};    // leave() has done its work
    std::atomic<bool> pending_{false}; // the event has not been seen finished
    std::atomic<bool> any_blocking_{false};
    std::atomic<bool> unseen_work_{false};
    std::mutex mutex_;
    std::vector<CUstream> newcomers_; // have yet to wait for the event; under mutex_
    std::uint64_t looks_ = 0;         // for first work; under mutex_
    CUevent event_ = nullptr;         // over all work until leave(); set before pending_
};

} // namespace cachealloc::shim
