// The state of memory at every moment that a recording covers.
//
// The ring forgets, the live table does not. What was live before the first event is known all the
// same: what is freed in the ring and was not allocated there (the free says size and stack), and
// what is live at the end and was not allocated there. Going forward from that state, each event
// leads to the next.
//
// Where the ring begins is not the same moment for all threads: a chunk that a slow thread filled
// may be forgotten although others of its time are kept. Where events were lost, the live table is
// right: an allocation that only it knows is put in at its time; a second allocation at an address
// ends the first. All of that is counted.
#pragma once

#include "tools/analysis/state.h"
#include "tools/trace/trace.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace cachealloc::tools {

/// Sees a recording go by. All analyses and exporters are visitors.
class HistoryVisitor {
  public:
    virtual ~HistoryVisitor() = default;
    /// Before the first event.
    virtual void on_start(const State& state) { (void)state; }
    /// `state` is after the event. `ended` is the block that a free or free_completed ended, as it
    /// was; null for other events and where it is not known. Both are valid during the call.
    virtual void on_event(const Event& event, const State& state, const Block* ended) = 0;
    /// After the last event. Allocations whose frees were lost are gone.
    virtual void on_end(const State& state) { (void)state; }
    /// True once it needs no more events. Asked after each event; the pass ends when all say so,
    /// without on_end().
    [[nodiscard]] virtual bool done() const { return false; }
};

/// How well events and live table agree.
struct HistoryCounts {
    std::uint64_t events = 0;
    std::uint64_t start_blocks = 0; ///< live before the first event
    std::uint64_t start_segments = 0;
    std::uint64_t inserted_allocs = 0; ///< since complete_since(), known to the live table alone
    std::uint64_t implied_frees = 0;   ///< the address was allocated again
    std::uint64_t lost_frees = 0;      ///< live by the events, not by the live table
    std::uint64_t lost_bytes = 0;      ///< of those blocks: live is too high by up to so much
    std::uint64_t unknown_frees = 0;   ///< of memory of which nothing is known
    std::uint64_t vanished = 0;        ///< overwritten while we read
};

class History {
  public:
    /// Reads all events once, to find the state before the first. `trace` must live longer.
    /// `progress` is called now and then with the share of the current pass that is done, 0 .. 1,
    /// and with 1 at its end.
    explicit History(const Trace& trace, std::function<void(double)> progress = {});

    /// One pass over all events. O(events). Each pass gives the same events, but for those that a
    /// running process overwrites meanwhile.
    void visit(const std::vector<HistoryVisitor*>& visitors);
    void visit(HistoryVisitor& visitor) { visit(std::vector<HistoryVisitor*>{&visitor}); }

    [[nodiscard]] const Trace& trace() const { return trace_; }
    [[nodiscard]] const HistoryCounts& counts() const { return counts_; }
    /// Before the first event, and after the last.
    [[nodiscard]] const State& start() const { return start_; }
    [[nodiscard]] const State& end() const { return end_; }
    /// Whether the history begins with the recording: the ring has forgotten nothing.
    [[nodiscard]] bool whole() const { return whole_; }
    /// Since these ticks no event is known to lack; see EventCounts.
    [[nodiscard]] std::uint64_t complete_since() const { return complete_since_; }
    /// Ticks of the first and the last event; of the recording's start where there are none.
    [[nodiscard]] std::uint64_t first_time() const { return first_time_; }
    [[nodiscard]] std::uint64_t last_time() const { return last_time_; }

  private:
    void reconstruct();
    void pass(const std::vector<HistoryVisitor*>& visitors);
    void reconcile(State& state);
    bool apply(const Event& event, State& state, Block& ended, bool learning);
    bool apply_free(const Event& event, State& state, Block& ended, bool learning);
    void show_progress(std::uint64_t position) const;

    const Trace& trace_;
    std::function<void(double)> progress_;
    State start_;
    State end_;
    std::vector<Event> inserted_; ///< by time
    HistoryCounts counts_;
    bool whole_ = true;
    std::uint64_t complete_since_ = 0;
    std::uint64_t first_time_ = 0;
    std::uint64_t last_time_ = 0;
};

} // namespace cachealloc::tools
