// All sound records of the history, in the order of their times.
//
// A chunk holds one thread's records in the order of time, so chunks are merged: sorted by their
// first record, each is opened when the merge comes to it. Only as many chunks are in memory as
// threads ran at once, and the file is read through small windows.
//
// Invariant: which records belong to the stream is fixed when it is made. A process that still runs
// may overwrite them later; they are then left out and counted.
#pragma once

#include "tools/trace/event.h"
#include "tools/trace/trace_file.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace cachealloc::tools {

/// What the ring holds.
struct EventCounts {
    std::uint64_t chunks = 0; ///< with a claim
    std::uint64_t unused_chunks = 0;
    std::uint64_t valid = 0;
    std::uint64_t torn = 0;        ///< damaged or never finished
    std::uint64_t older = 0;       ///< of an earlier lap
    std::uint64_t unknown = 0;     ///< kinds that this reader does not know
    std::uint64_t foreign = 0;     ///< in chunks whose claim another chunk has too
    std::uint64_t first_claim = 0; ///< the lowest; 0 where nothing was claimed
    std::uint64_t first_time = 0;
    std::uint64_t last_time = 0;
    /// The first event since which the ring has forgotten none, as far as it can be told. Chunks of
    /// threads that record little stay for long, so that single events are older.
    std::uint64_t complete_since = 0;
};

class EventStream {
  public:
    /// Reads the ring once and notes what is valid. O(records).
    explicit EventStream(const TraceFile& file);

    [[nodiscard]] const EventCounts& counts() const { return counts_; }

  private:
    friend class EventCursor;
    /// One chunk that has valid records.
    struct Run {
        std::uint64_t first_time;
        std::uint64_t claim;
        std::uint64_t valid; ///< a bit for each record
        std::uint64_t offset;
    };
    void take(const trace::Chunk& chunk, std::uint64_t offset);
    void drop_duplicates();
    void find_complete();

    const TraceFile& file_;
    std::vector<Run> runs_; ///< by first time
    EventCounts counts_;
};

/// One pass over a stream, from its start.
class EventCursor {
  public:
    explicit EventCursor(const EventStream& stream);
    ~EventCursor();
    EventCursor(const EventCursor&) = delete;
    EventCursor& operator=(const EventCursor&) = delete;

    /// The next event; false at the end. Times never go back. O(log threads).
    bool next(Event& event);
    /// Events given so far.
    [[nodiscard]] std::uint64_t position() const { return position_; }
    /// Records of the stream that were overwritten since it was made.
    [[nodiscard]] std::uint64_t vanished() const { return vanished_; }

  private:
    struct Open;
    using Run = EventStream::Run;
    void open(const Run& run);
    void sift_down(std::size_t at);
    void sift_up(std::size_t at);

    const EventStream& stream_;
    std::size_t next_run_ = 0;
    std::vector<std::unique_ptr<Open>> heap_; ///< the earliest on top
    std::vector<std::unique_ptr<Open>> idle_; ///< kept for the next chunk
    std::uint64_t position_ = 0;
    std::uint64_t vanished_ = 0;
};

} // namespace cachealloc::tools
