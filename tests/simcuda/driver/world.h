// The simulation: one lock, one virtual clock, the queue of device work.
//
// Invariant: an operation starts when every operation before it has ended (and its gate holds), and
// its effect happens at `finish` = start + duration; virtual time never runs backwards. Which of
// several operations that end at the same time goes first is drawn from the seed.
//
// Time passes by: a small cost of every API call, simcuda_advance_ns, and host threads that wait,
// who carry the device forward themselves until what they wait for has happened.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "objects.h"

namespace simcuda {

using Lock = std::unique_lock<std::mutex>;

enum class Progress : std::uint64_t { lazy = 0, eager = 1, random = 2 };

// What belongs to one host thread. It outlives the thread: exit handlers may still call.
struct ThreadState {
    std::uint64_t serial;             // unique in the process, never reused
    std::vector<ContextPtr> contexts; // the stack; the last is current
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    bool in_callback = false;
    Lock* lock = nullptr; // the call's lock while one is under way

    explicit ThreadState(std::uint64_t n) : serial(n) {}
    ContextPtr current() const { return contexts.empty() ? nullptr : contexts.back(); }
};
ThreadState& self();

class World {
  public:
    // The one world; made at the first use and never destroyed.
    static World& get();

    std::mutex mutex;
    std::map<std::string, std::uint64_t> settings;
    std::atomic<bool> forked{false};
    bool initialised = false;
    bool ended = false;
    std::vector<std::unique_ptr<Device>> devices;
    AddressMap map;
    Oracle oracle;        // mapped memory by its identity, the rest by address
    Oracle mapping_users; // mapped memory by address: who has used which mapping
    Handles<CUcontext, Context> contexts;
    std::map<CUcontext, ContextPtr> dead_contexts; // until their handle is given out again
    std::map<CUgreenCtx, ContextPtr> greens;
    Handles<CUstream, Stream> streams;
    Handles<CUevent, Event> events;
    Handles<CUgraph, Graph> graphs;
    Handles<CUmemoryPool, Pool> pools;
    std::vector<CapturePtr> captures; // open ones, invalidated ones included
    std::uint64_t next_context = 0;
    std::uint64_t next_stream = 0;
    std::uint64_t next_capture = 0;
    std::vector<std::unique_ptr<ThreadState>> threads;
    std::uint64_t races = 0;
    std::uint64_t errors = 0;
    std::map<std::uintptr_t, std::size_t> live; // marked by the test

    void init();
    std::uint64_t setting(const char* key) const;
    Ns now() const { return now_; }
    void reseed(std::uint64_t seed) { random_.seed(seed); }

    // Every call passes here first: the host spent some time, and depending on the progress policy
    // the device did some work.
    void tick();
    // What is due by now ends.
    void catch_up() { run_until(now_); }
    void run_until(Ns t);
    // Carries the device forward until the condition holds; waits for other threads when nothing
    // can advance; ends the process with status 87 when nobody moves for `deadlock_s` seconds.
    void wait_for(const std::function<bool()>& condition);
    void wait(const OpPtr& op);
    std::uint64_t blocked() const { return blocked_; }
    void wake() { changed_.notify_all(); }

    // Submits work behind everything that must come before it on this stream.
    // `also`: one more operation to come behind (an event's).
    OpPtr submit(const StreamPtr& s, Work work, const OpPtr& also = nullptr);
    // Submits a kernel that need not wait for the kernel in front of it on the stream.
    OpPtr submit_programmatic(const StreamPtr& s, Work work);
    // What new work of this stream must come behind.
    std::vector<OpPtr> predecessors(const StreamPtr& s);
    // The operation that ends when all work of the context submitted so far has ended.
    OpPtr all_of(const ContextPtr& ctx, const char* label, Work work = {});
    // Work behind the given operations only.
    OpPtr submit_after(const ContextPtr& ctx, const StreamPtr& s, Work work,
                       const std::vector<OpPtr>& after, bool moves_stream,
                       std::uint32_t slot = kNoSlot);
    // A slot of its own for work that its stream's other work is not ordered with. Give it back at
    // once when all that work was submitted: the slot is not used again before the host knows that
    // the work has ended.
    std::uint32_t take_slot();
    void give_slot(std::uint32_t slot) { retiring_.push_back(slot); }
    // Later work of the context waits for `op`.
    void add_barrier(const ContextPtr& ctx, const OpPtr& op);
    // Whether all work of the stream has ended.
    static bool idle(const StreamPtr& s) { return s->last == nullptr || s->last->done; }

    // The host knows that `op` has ended: what any thread submits from now on is ordered behind it.
    void host_learns(const Clock& clock) { join(host_, clock); }
    // The host touches memory itself, or takes it away (`label` says how).
    void host_access(std::uintptr_t p, std::size_t bytes, bool write,
                     const char* label = "the host");
    // The host ends a mapping: whoever used it must be known to be done, other mappings of the same
    // memory may be in use.
    void host_unmaps(std::uintptr_t p, std::size_t bytes, const char* label);

    StreamPtr make_stream(const ContextPtr& ctx, StreamKind kind, unsigned flags, int priority);
    void retire_stream(const StreamPtr& s);
    StreamPtr per_thread_stream(const ContextPtr& ctx);
    // Operations not yet ended that touch any of these bytes.
    OpPtr pending_user(std::uintptr_t p, std::size_t bytes) const;
    void race(const Race& r);
    void error(const std::string& what);

  private:
    World();
    bool step();
    void start_if_ready(const OpPtr& op);
    void finish(const OpPtr& op);
    void check_accesses(const OpPtr& op);
    void check_order(std::uintptr_t p, std::size_t bytes, bool write, const Stamp& stamp,
                     const Clock& clock);
    void run_host_code(const OpPtr& op);
    void callback_thread();
    void depend(const OpPtr& op, const OpPtr& before);
    void collect_slots();

    Ns now_ = 0;
    std::uint64_t next_op_ = 0;
    std::map<std::pair<Ns, std::uint64_t>, OpPtr> running_; // by end, ties by the seed
    std::map<std::uint64_t, OpPtr> unfinished_;
    std::vector<OpPtr> gated_;
    std::map<std::uintptr_t, Clock> published_;
    std::mt19937_64 random_;
    std::condition_variable changed_;
    std::uint64_t activity_ = 0;
    std::uint64_t blocked_ = 0;
    Clock host_;                           // slot 0 is the host's own
    std::vector<std::uint32_t> epochs_{0}; // by slot
    std::vector<std::uint32_t> free_slots_;
    std::vector<std::uint32_t> retiring_; // slots whose stream is gone
    std::deque<OpPtr> callbacks_;
    std::condition_variable callback_ready_;
    std::uint64_t callbacks_running_ = 0;
    bool callback_thread_started_ = false;
};

} // namespace simcuda
