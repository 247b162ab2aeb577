// The recorder's insides: what recorder*.cpp share. Internal to them.
#pragma once

#include "core/record/device_totals.h"
#include "core/record/event_ring.h"
#include "core/record/live_table.h"
#include "core/record/module_log.h"
#include "core/record/recorder.h"
#include "core/record/stack_table.h"
#include "core/record/statistic_log.h"
#include "core/record/text_log.h"
#include "core/record/thread_log.h"
#include "core/record/thread_state.h"
#include "core/record/trace_clock.h"
#include "core/record/trace_file.h"

#include <atomic>
#include <cstdint>

#include <pthread.h>

namespace cachealloc {

/// Everything of one recording. Made once in static memory and never destroyed.
class RecorderParts {
  public:
    /// `file` is created, with the sections of sections().
    RecorderParts(TraceFile& trace_file, const RecorderSettings& settings);

    /// Whether this process records. False in any child of a fork, even one that came about by a
    /// bare system call: the word lies in a page that the kernel clears in children.
    static bool alive() { return alive_->load(std::memory_order_relaxed) != 0; }
    /// False where there is no page for the word.
    static bool come_alive();
    static void forget() { alive_->store(0, std::memory_order_relaxed); }

    /// Has the processor fetch what the event will touch: met one after the other, with the clock
    /// waiting for each, the misses are a third of an event's cost in a real program.
    void prefetch(const ThreadState& state, trace::AddressSpace space, std::uint64_t address) {
        live.prefetch(space, address);
        if (state.place.chunk != nullptr && state.place.next < trace::kChunkRecords)
            __builtin_prefetch(&state.place.chunk->records[state.place.next], 1);
    }
    /// Makes the thread's next record ready: sequence and all that the thread knows. False where
    /// nothing may be written at all: this is another process in our memory (vfork).
    bool prepare(ThreadState& state, trace::EventRecord& record);
    /// Writes a prepared record into the history; its check word is right.
    void commit(ThreadState& state, const trace::EventRecord& record);
    /// Enters a prepared record into the live table.
    void enter(ThreadState& state, const trace::EventRecord& record);
    /// Adds the record's bytes to the device's counters, or takes them off (`sign`).
    void count(ThreadState& state, const trace::EventRecord& record, int sign);
    /// Captures the calling thread's stack for the call it is in.
    void capture(ThreadState& state);
    /// What need not be done at each event, with no lock of anybody's held.
    void tidy(ThreadState& state);
    /// The calling thread writes no more for now; its counters are in the file.
    void finish_thread(ThreadState& state);
    void note_latest();

    TraceFile& file;
    trace::Header& header;
    const TraceClock clock;
    StackSource* const stacks;
    const bool free_stacks;
    ThreadLog threads;
    EventRing ring;
    LiveTable live;
    StackTable stack_table;
    ModuleLog modules;
    StatisticLog statistics;
    TextLog texts;
    DeviceTotals devices;

  private:
    bool claim_chunk(ThreadState& state, std::uint64_t now);
    void arm(ThreadState& state);

    static std::atomic<std::uint32_t>* alive_;

    void (*const refresh_)(void* context);
    void* const refresh_context_;
    std::atomic<bool> tidying_{false};
    std::atomic<std::uint64_t> tidy_due_{0};
    std::uint64_t tidy_ticks_; ///< written under tidying_
    std::uint64_t start_ns_;
    pthread_key_t end_key_{};
    bool has_end_key_ = false;
};

/// The sections of a recording and their sizes.
struct RecorderSections {
    enum Index : std::size_t {
        events,
        live,
        stacks,
        frames,
        modules,
        threads,
        devices,
        statistics,
        settings,
        count
    };
    explicit RecorderSections(std::uint64_t ring_bytes);
    SectionPlan plans[count];
};

/// Whether the call gives memory back.
bool gives_back(trace::CallName call);

} // namespace cachealloc
