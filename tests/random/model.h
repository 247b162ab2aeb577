// What a program may do natively: which operation is legal and free of races at this point, and the
// code that it returns.
//
// The model keeps its own happens-before order, by CUDA's rules alone: a clock per stream, one for
// the host (its threads take turns), the last write and the reads of every buffer. It knows nothing
// of a caching allocator. Its rule is stricter than a GPU's in one place: what cudaFree natively
// waits for orders only what a Lean allows.
//
// Invariant: a program of which every operation is legal has no race, no deadlock and no use of
// memory outside its life, whatever the timing.
#pragma once

#include "tests/random/program.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace random_programs {

/// What somebody knows: by slot (a stream that once was) the last operation ordered before.
using Clock = std::vector<std::uint32_t>;

struct Stamp {
    std::uint32_t slot = 0;
    std::uint32_t epoch = 0; ///< 0: nothing
};

/// Who used a buffer since it was last written by somebody whom all later users come behind.
struct Users {
    Stamp write;
    std::vector<Stamp> reads;
};

struct Verdict {
    bool legal = true;
    int code = 0;        ///< what the call returns natively (cudaError_t)
    bool certain = true; ///< false: the code depends on timing (600, not ready, is possible)
    std::optional<Stamp> missing; ///< not legal for want of order behind this
    static Verdict no() { return {false, 0, true, std::nullopt}; }
};

class Model {
  public:
    explicit Model(Lean lean = Lean::nothing) : lean_(lean) {}

    /// Says whether the operation is legal now; changes nothing.
    Verdict check(const Operation& operation) { return step(operation, false); }
    /// Carries it out; it must be legal.
    Verdict apply(const Operation& operation) { return step(operation, true); }

    // --- What a generator wants to know.
    bool stream_exists(std::int64_t stream) const;
    bool block_lives(std::int64_t block) const { return blocks_[index(block)].alive; }
    bool block_async(std::int64_t block) const { return blocks_[index(block)].async; }
    std::int64_t block_size(std::int64_t block) const { return blocks_[index(block)].size; }
    bool event_exists(std::int64_t event) const { return events_[index(event)].alive; }
    bool graph_exists(std::int64_t graph) const { return graphs_[index(graph)].alive; }
    bool pinned_exists(std::int64_t host) const { return hosts_[index(host)].alive; }
    bool capturing() const { return !captures_.empty(); }
    /// Whether the program may end here: nothing is left open.
    bool may_end() const { return captures_.empty() && gates_.empty(); }
    /// The stream that a capture of this thread began on, if one is open.
    struct Origin {
        std::int64_t stream;
        std::int64_t device;
    };
    std::optional<Origin> capture_of(int thread) const;
    /// Serial of the capture that the stream takes part in; -1: none. Streams as `thread` names
    /// them.
    int capture_at(std::int64_t stream, int thread);
    bool gates_shut() const { return !gates_.empty(); }
    std::int64_t device_of(int thread) const { return current_[index(thread)]; }
    /// A stream name, usable by `thread`, for a slot; nothing if its stream is gone or elsewhere.
    std::optional<std::int64_t> stream_of_slot(std::uint32_t slot, int thread) const;

  private:
    enum class Kind { legacy, blocking, non_blocking, per_thread };
    struct Capture;
    struct Stream {
        Kind kind = Kind::legacy;
        std::int64_t device = 0;
        bool alive = true;
        std::uint32_t slot = 0;
        std::int64_t name = 0;
        int thread = -1; ///< of a per-thread one
        Clock last;
        bool after_kernel = false; ///< then the kernel in front came behind `front`
        Clock front;
        std::shared_ptr<Capture> capture;
        Clock captured;      ///< its clock inside the capture
        bool unseen = false; ///< a free in its order is on its way that no clock shows
        bool blocking() const { return kind == Kind::blocking || kind == Kind::per_thread; }
    };
    struct Buffer {
        bool alive = false;
        bool async = false;
        bool is_host = false;
        std::int64_t device = 0;
        std::int64_t size = 0;
        Users users;
    };
    struct Access {
        Buffer* buffer;
        bool write;
    };
    struct Capture {
        int serial = 0;
        std::int64_t mode = 0;
        int thread = 0;
        Stream* origin = nullptr;
        bool invalidated = false;
        std::vector<Stream*> streams;
        std::map<Buffer*, Users> users; ///< inside the capture
        std::vector<Access> accesses;
    };
    struct Event {
        bool alive = false;
        bool recorded = false;
        std::int64_t device = 0;
        Clock clock;
        std::shared_ptr<Capture> capture;
        Clock captured;
    };
    struct Graph {
        bool alive = false;
        bool usable = true; ///< until one of its buffers is freed
        std::int64_t device = 0;
        std::vector<Access> accesses;
        Clock last; ///< of the previous launch
    };
    struct Gate {
        std::int64_t flag;
        Stamp stamp;
    };

    static std::size_t index(std::int64_t name) { return static_cast<std::size_t>(name); }
    Verdict step(const Operation& o, bool commit);
    Verdict step_objects(const Operation& o, bool commit);
    Verdict step_memory(const Operation& o, bool commit);
    Verdict step_waits(const Operation& o, bool commit);
    Verdict step_capture(const Operation& o, bool commit);
    Verdict step_gates(const Operation& o, bool commit);
    Verdict step_contexts(const Operation& o, bool commit);
    Verdict step_work(const Operation& o, bool commit);
    Verdict begin_capture(const Operation& o, bool commit);
    Verdict end_capture(const Operation& o, bool commit);
    Verdict launch(const Operation& o, bool commit);
    Verdict free_plain(const Operation& o, bool commit);
    Verdict free_async(const Operation& o, bool commit);
    Verdict wait_event(const Operation& o, bool commit);
    Verdict record_event(const Operation& o, bool commit);

    Stream* find_stream(std::int64_t name, int thread);
    Stream& make_stream(Kind kind, std::int64_t device, std::int64_t name, int thread);
    Stream* usable_stream(std::int64_t name, int thread); ///< null: none here, or of another device
    Clock own_clock(const Stream& s) const;               ///< without what legacy rules add
    void join_legacy_rules(Clock& clock, const Stream& s) const;
    Clock early_clock(const Stream& s) const;
    Clock clock_for(const Stream& s) const; ///< of the next work on it
    /// Waits for a gate by a tie that may or may not be there.
    bool hides_gate(const Stream& s) const;
    Stamp submit_early(Stream& s, Clock clock);
    Stamp submit(Stream& s, Clock clock);
    struct Work {
        std::vector<Access> accesses;
        bool host_waits = false; ///< the call returns when it is done
        bool copies = false;     ///< a copy needs no peer access
        bool kernel = false;
        bool early = false; ///< it need not wait for the kernel in front
    };
    Verdict work(Stream& s, const Work& what, bool commit);
    Verdict captured_work(Stream& s, const std::vector<Access>& accesses, bool commit);
    std::optional<Stamp> conflict(const Users& users, bool write, const Clock& clock) const;
    static void note(Users& users, bool write, Stamp stamp, const Clock& clock);
    std::optional<Stamp> unseen_result(const Buffer& buffer) const;
    bool is_ready(const Clock& clock, int thread) const;
    bool order_is_lost(std::int64_t device) const;
    std::optional<Stamp> unknown_to_host(const Buffer& buffer, bool write) const;
    Clock all_of(std::int64_t device) const;
    bool depends_on_gate(const Clock& clock) const;
    bool forbidden(int thread, bool commit); ///< by a capture; ends those in the way
    bool captures_in(std::int64_t device) const;
    bool legacy_forbidden(const Stream& s) const;
    void end_life(Buffer& buffer);
    void leave(const std::shared_ptr<Capture>& capture);
    static void join(Clock& into, const Clock& other);
    static bool knows(const Clock& clock, Stamp stamp);

    Lean lean_;
    std::vector<std::unique_ptr<Stream>> streams_; ///< all that ever were
    std::vector<Stream*> slots_{nullptr};          ///< the stream that a slot's work is on
    std::map<std::int64_t, Stream*> created_;      ///< by name
    std::map<std::int64_t, Stream*> legacy_;       ///< by device
    std::map<std::pair<int, std::int64_t>, Stream*> per_thread_;
    std::array<Buffer, kBlocks> blocks_{};
    std::array<Buffer, kHosts> hosts_{};
    std::array<Event, kEvents> events_{};
    std::array<Graph, kGraphs> graphs_{};
    std::array<std::int64_t, kThreads> current_{};
    std::array<bool, kFlags> flags_used_{};
    std::array<bool, kDevices> peers_{}; ///< this device may use the other's memory
    std::vector<std::shared_ptr<Capture>> captures_;
    std::vector<Gate> gates_;
    std::vector<std::uint32_t> epochs_{0};
    Clock host_;
    std::array<Clock, kThreads> freed_; ///< what each thread's frees have natively waited for
    Clock work_;                        ///< what all later work comes behind, beside host_
    bool finished_level_ = false;       ///< the shim may be at a level without barriers
    Clock results_;                     ///< what the host may look at the results of, beside host_
    int next_capture_ = 0;
    bool failures_ = false; ///< calls are made to fail
};

/// The models of a program: one, or one a thread when they run freely.
class Models {
  public:
    explicit Models(const Program& program) : free_running_(program.free_running) {
        models_.fill(nullptr);
        for (int i = 0; i < (free_running_ ? kThreads : 1); ++i) {
            owned_.push_back(
                std::make_unique<Model>(free_running_ ? Lean::nothing : lean_of(program)));
            models_[static_cast<std::size_t>(i)] = owned_.back().get();
        }
    }
    Model& of(int thread) { return *models_[free_running_ ? static_cast<std::size_t>(thread) : 0]; }

  private:
    bool free_running_;
    std::vector<std::unique_ptr<Model>> owned_;
    std::array<Model*, kThreads> models_{};
};

} // namespace random_programs
