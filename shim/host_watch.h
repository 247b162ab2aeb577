// free:auto: which frees wait as natively, and what the others owe to the questions that follow.
//
// Natively cudaFree waits for all work of its context, and programs may lean on it: start work
// whose results the host sees (a copy to the host, a host function, a kernel that writes memory
// which the host reads too), free something, look at the results. Such a free waits here as well.
// All others return at once; but natively everything before them is complete, so when the freeing
// thread asks about an event or a stream and is told "not ready" about work from before its last
// such free, it waits for that work and asks again.
//
// With free:sync and free:async nothing here does anything.
#pragma once

#include "core/device_pool.h"
#include "core/order/capture_gate.h"
#include "shim/cuda_types.h"
#include "shim/graph_effects.h"
#include "shim/host_reachable.h"
#include "shim/host_visible.h"
#include "shim/record_times.h"

#include <atomic>
#include <cstdint>
#include <initializer_list>

namespace cachealloc::shim {

struct ContextPool;
struct Process;

class HostWatch {
  public:
    HostWatch(Process& process, CaptureGate& gate, bool on)
        : on_(on), process_(process), gate_(gate), probe_(gate) {}

    // Whether free:auto is chosen.
    bool on() const { return on_; }
    // Whether anything that the host may see is outstanding.
    bool any() const { return visible.any(); }

    // --- Submissions.

    // Work that the host may see has been accepted on the stream.
    void submitted(CUstream stream, bool per_thread_api);
    // Whether a copy to this address may write host memory: it is neither a pool's nor known to
    // the driver as device memory.
    bool may_be_host(CUdeviceptr pointer) const;
    bool may_be_host(CUmemorytype type, CUdeviceptr unified) const;
    // Any submission, while kWatchNext is on.
    void any_submission();

    // --- Synchronisations: everything that `call` covers is settled if it succeeds.

    template <class Call>
    CUresult stream_call(CUstream stream, bool per_thread_api, bool waits, Call call);
    template <class Call>
    CUresult event_call(CUevent event, bool waits, Call call);
    // `context` null: the current one.
    template <class Call>
    CUresult context_call(CUcontext context, Call call);
    // A blocking copy or the like: whatever is idle after it.
    void settle_idle() {
        if (any()) visible.settle_idle(probe_);
    }

    // --- Order among streams.

    template <class Call>
    CUresult record_call(CUevent event, CUstream stream, bool per_thread_api, Call call);
    template <class Call>
    CUresult wait_event_call(CUstream stream, bool per_thread_api, CUevent event, Call call);
    // Some events stand for something else from now on, and it is not known which.
    void events_recorded_unseen() {
        if (on_) times.forget_all();
        if (any()) visible.forget_events();
    }
    // Events may be recorded by other processes from now on.
    void events_are_shared() { shared_events_.store(true, std::memory_order_release); }

    // --- Frees.

    // Frees the block (DevicePool::free()) and waits if the program may lean on it.
    PoolResult free(ContextPool& context, Block* block, CUdeviceptr pointer);
    // Waits for the context as a free does natively, if this free has to. For frees beside an open
    // capture, where nothing can be recorded.
    void wait_beside_capture(ContextPool& context);

    // --- Questions. `ask` has just said "not ready"; the answer that holds natively.

    template <class Ask>
    CUresult events_not_ready(std::initializer_list<CUevent> events, Ask ask);
    template <class Ask>
    CUresult stream_not_ready(Ask ask);

    std::uint64_t query_waits() const { return query_waits_.load(std::memory_order_relaxed); }

    HostVisible visible;
    HostReachable reachable;
    RecordTimes times;
    GraphEffects graphs;

  private:
    class Probe final : public HostVisible::Probe {
      public:
        explicit Probe(CaptureGate& gate) : gate_(gate) {}
        bool idle(const HostVisible::Stream& stream) override;

      private:
        CaptureGate& gate_;
    };

    struct Plan {
        FreeKind kind;
        HostVisible::Number upto; // what was outstanding, if the free is to wait
    };
    Plan plan(ContextPool& context);

    // How a question about work before the last free can be answered as natively: not at all, by
    // the fence of that free (which has been waited for), or by asking until it is ready.
    enum class Answer { as_it_is, after_fence, when_ready };
    Answer answer(bool about_a_stream);
    bool recorded_since_free(CUevent event) const;
    bool recorded_before_free(CUevent event) const;
    bool submitted_since_free() const;
    template <class Ask, class GoOn>
    CUresult ask_until_ready(Ask ask, GoOn go_on);

    std::uint64_t id_of(CUstream stream, bool per_thread_api) const;
    HostVisible::Stream describe(CUstream stream, bool per_thread_api) const;
    bool capture_open() const { return gate_.open() != 0; }
    static CUcontext current_context();
    static void pause();

    const bool on_;
    Process& process_;
    CaptureGate& gate_;
    Probe probe_;
    std::atomic<bool> shared_events_{false};
    std::atomic<std::uint64_t> query_waits_{0};
    std::atomic<std::uint32_t> first_submissions_{0}; // after a free at level `ordered`
};

template <class Call>
CUresult HostWatch::stream_call(CUstream stream, bool per_thread_api, bool waits, Call call) {
    if (!any()) return call();
    const HostVisible::Cover cover = visible.covered_by_stream(id_of(stream, per_thread_api));
    const CUresult result = call();
    if (result == CUDA_SUCCESS) {
        visible.settle(cover);
        if (waits) settle_idle();
    }
    return result;
}

template <class Call>
CUresult HostWatch::event_call(CUevent event, bool waits, Call call) {
    if (!any()) return call();
    const HostVisible::Seen seen = visible.covered_by_event(event);
    const CUresult result = call();
    if (result == CUDA_SUCCESS) {
        if (!shared_events_.load(std::memory_order_acquire)) visible.settle(event, seen);
        if (waits) settle_idle();
    }
    return result;
}

template <class Call>
CUresult HostWatch::context_call(CUcontext context, Call call) {
    if (!any()) return call();
    if (context == nullptr) context = current_context();
    const HostVisible::Number upto = visible.latest();
    const CUresult result = call();
    if (result == CUDA_SUCCESS) {
        visible.settle_context(context, upto);
        settle_idle();
    }
    return result;
}

// A record beside an open capture may go into the graph instead: the event then stands for nothing
// that is known here.
template <class Call>
CUresult HostWatch::record_call(CUevent event, CUstream stream, bool per_thread_api, Call call) {
    if (!on_) return call();
    const bool captured = capture_open();
    times.recording(event);
    if (!any()) return call();
    const HostVisible::Record record =
        visible.begin_record(event, captured ? 0 : id_of(stream, per_thread_api));
    const CUresult result = call();
    visible.end_record(event, record, result == CUDA_SUCCESS && !captured);
    return result;
}

template <class Call>
CUresult HostWatch::wait_event_call(CUstream stream, bool per_thread_api, CUevent event,
                                    Call call) {
    if (!any()) return call();
    const HostVisible::Seen seen = visible.covered_by_event(event);
    const CUresult result = call();
    if (result == CUDA_SUCCESS && !seen.cover.empty() && !capture_open() &&
        !shared_events_.load(std::memory_order_acquire)) {
        visible.joined(id_of(stream, per_thread_api), event, seen);
    }
    return result;
}

template <class Ask, class GoOn>
CUresult HostWatch::ask_until_ready(Ask ask, GoOn go_on) {
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY && go_on()) {
        pause();
        const GatePass pass(gate_);
        if (!pass.inside()) break;
        result = ask();
    }
    return result;
}

template <class Ask>
CUresult HostWatch::events_not_ready(std::initializer_list<CUevent> events, Ask ask) {
    bool all_before = true;
    for (const CUevent event : events) {
        if (!on_ || recorded_since_free(event)) return CUDA_ERROR_NOT_READY;
        all_before = all_before && recorded_before_free(event);
    }
    switch (answer(false)) {
    case Answer::after_fence:
        return ask();
    case Answer::when_ready:
        // An event of which nothing is known may stand for work of after the free, which may be
        // waiting for the host.
        return ask_until_ready(ask, [&] { return all_before || !submitted_since_free(); });
    case Answer::as_it_is:
        break;
    }
    return CUDA_ERROR_NOT_READY;
}

template <class Ask>
CUresult HostWatch::stream_not_ready(Ask ask) {
    if (!on_) return CUDA_ERROR_NOT_READY;
    switch (answer(true)) {
    case Answer::after_fence:
        return ask();
    case Answer::when_ready:
        return ask_until_ready(ask, [this] { return !submitted_since_free(); });
    case Answer::as_it_is:
        break;
    }
    return CUDA_ERROR_NOT_READY;
}

} // namespace cachealloc::shim
