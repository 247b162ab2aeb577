// Writes the recording of this process: the one class that others use of this folder.
//
// Invariant: the recorder never takes the host down and never waits for it: what has no room is
// counted and left out, no call throws, and no lock of the recorder is held while a stack is
// captured or another library is called.
//
// A program's call is bracketed by a RecordedCall, which captures the stack before any lock of the
// pool is taken. The events of the call name that stack. Calls from signal handlers that interrupt
// the recorder itself are counted (Counters::nested) and not recorded.
#pragma once

#include "core/record/trace_format.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cachealloc {

/// Captures the calling thread's stack.
class StackSource {
  public:
    virtual ~StackSource() = default;
    /// Writes return addresses, innermost first, at most `room`; returns how many. `cut` says that
    /// the stack goes on. Called by any thread, with no lock held; never re-entered by one thread.
    /// Must not throw or allocate.
    virtual std::size_t capture(trace::Frame* frames, std::size_t room, bool& cut) = 0;
};

struct RecorderSettings {
    const char* const* paths = nullptr; ///< tried in turn until one has room; must not exist yet
    std::size_t path_count = 0;
    std::uint64_t ring_bytes = 64U << 20; ///< of history
    std::uint32_t stack_depth = 64;
    StackSource* stacks = nullptr; ///< null: no stacks
    bool free_stacks = false;      ///< frees capture their stacks too
    /// Called every now and then (at most each 100 ms, by one thread at a time, at the end of its
    /// outermost RecordedCall, with no lock held) so that the statistics in the file are fresh; may
    /// be null.
    void (*refresh)(void* context) = nullptr;
    void* refresh_context = nullptr;
};

class RecorderParts;

/// What an event says beyond its kind.
struct MemoryEvent {
    std::uint64_t address = 0;
    std::uint64_t size = 0; ///< bytes asked for
    std::uint64_t stream = 0;
    trace::MemoryType memory = trace::MemoryType::none;
    std::uint8_t device = 0;
    std::uint8_t flags = 0;
    std::uint8_t pool = 255;
    std::uint32_t extra = 0; ///< bytes beyond `size`
};

class Recorder {
  public:
    /// Makes the file and starts; null if no path had room (`error` then holds an errno, of the
    /// last path tried, and `path_index` which path was used or tried last). One recorder lives at
    /// a time in a process; it is never destroyed. Not thread-safe.
    static Recorder* start(const RecorderSettings& settings, int& error, std::size_t& path_index);

    /// The process ends through exit(): the file's state becomes clean_exit and all counters are
    /// written but for what other threads hold back (DeviceCounters); with `remove` its name is
    /// taken away. Events after that are still recorded.
    void exiting(bool remove);

    /// For good, in a forked child: forgets the file, which is the parent's. Async-signal-safe.
    static void forget_in_child();

    /// Memory was handed to the program. Records the event and enters it into the live table.
    void allocated(const MemoryEvent& event);

    /// Memory of that space and address is given back, by the program (or ends with its context).
    /// To be called before anybody else can get it. Size, extra, type and stack come from the live
    /// table; `stream`, `flags`, `device`, `pool` from `event`. What the table does not hold is
    /// recorded with what `event` says and counted.
    void freed(trace::AddressSpace space, const MemoryEvent& event);

    /// Undoes freed(): the driver refused. `event` as it was allocated.
    void not_freed(const MemoryEvent& event);

    /// Any other event. Segments enter the live table (segment_alloc, segment_map) and leave it.
    void note(trace::EventKind kind, const MemoryEvent& event);

    /// The event of a live allocation, for callers that must restore it; false if not there.
    bool find(trace::AddressSpace space, std::uint64_t address, MemoryEvent& event);

    /// Every live allocation and segment for which `chosen` says true ends: a context went away.
    /// `chosen` runs under a lock of the recorder: it only looks. O(live table).
    void end_all(bool (*chosen)(const trace::EventRecord&, void* context), void* context);

    /// Text for the reader: who ran, with which settings. What has no room is left out.
    void set(std::string_view name, std::string_view value);
    /// A number that the reader shows, replaced at each call. Callable in
    /// RecorderSettings::refresh.
    void set_statistic(std::string_view name, std::uint64_t value);
    void set_device(std::uint32_t device, std::string_view name, std::uint64_t total_bytes);

    /// A module was loaded or unloaded. `path` and `build_id` may be cut. Thread-safe.
    void module(const trace::ModuleRecord& record);
    /// Modules have changed: stacks seen from now on are told apart from equal ones before.
    void modules_changed();

    trace::Counters& counters();
    void mark_seen(trace::Seen what);
    /// What the clock says now, in the file's ticks.
    std::uint64_t now() const;
    const char* path() const;

  private:
    friend class RecordedCall;
    friend class RecorderParts;
    explicit Recorder(RecorderParts& parts) : parts_(parts) {}

    RecorderParts& parts_;
};

/// One call of the program, from before the first lock to after the last event. Cheap where
/// `recorder` is null. May be nested.
class RecordedCall {
  public:
    /// Captures the stack if `with_stack` (for calls that give back: if
    /// RecorderSettings::free_stacks asks). A call within another captures its own. In a signal
    /// handler that interrupted a capture there is none.
    RecordedCall(Recorder* recorder, trace::CallName call, bool with_stack = true)
        : recorder_(recorder) {
        if (recorder != nullptr) [[unlikely]]
            begin(call, with_stack);
    }
    ~RecordedCall() {
        if (recorder_ != nullptr) [[unlikely]]
            end();
    }
    RecordedCall(const RecordedCall&) = delete;
    RecordedCall& operator=(const RecordedCall&) = delete;

  private:
    void begin(trace::CallName call, bool with_stack);
    void end();

    Recorder* const recorder_;
    std::uint32_t outer_stack_ = 0;
    std::uint8_t outer_flags_ = 0;
    trace::CallName outer_call_ = trace::CallName::none;
};

} // namespace cachealloc
