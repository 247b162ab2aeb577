#pragma once

#include "core/record/device_totals.h"
#include "core/record/event_ring.h"
#include "core/record/trace_format.h"

#include <atomic>
#include <cstdint>

namespace cachealloc {

/// What the recorder knows of the calling thread. Plain and zero at first: a thread-local object
/// with a constructor or destructor would allocate, and be gone while other libraries' destructors
/// still free memory.
struct ThreadState {
    RingPlace place;
    std::uint64_t last_time;  ///< of its last event
    std::uint32_t number;     ///< in the ThreadLog
    std::uint32_t stack;      ///< of the RecordedCall it is in
    std::uint32_t calls;      ///< RecordedCalls it is in
    std::uint8_t stack_flags; ///< kCutStack
    trace::CallName call;     ///< of the RecordedCall it is in
    bool writing;             ///< it is inside the recorder, and a signal handler must not go there
    bool capturing;           ///< its stack is being captured
    bool entered;             ///< has asked for a number
    bool armed;               ///< its end will be told
    bool fresh;               ///< it has a new chunk, and the work that goes with it is not done
    DeviceBatch batch;
    trace::EventRecord taken; ///< the last that left the live table, for Recorder::not_freed()
};

/// Initial-exec: no call of the loader (which allocates) on the way to it.
extern constinit thread_local ThreadState t_state __attribute__((tls_model("initial-exec")));

/// Says that the thread is inside the recorder, for as long as it lives. False: it already was,
/// and a signal handler asks; it must leave everything alone.
class Writing {
  public:
    explicit Writing(ThreadState& state) : state_(state), entered_(!state.writing) {
        state_.writing = true;
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    ~Writing() {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (entered_) state_.writing = false;
    }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;
    explicit operator bool() const { return entered_; }

  private:
    ThreadState& state_;
    const bool entered_;
};

} // namespace cachealloc
