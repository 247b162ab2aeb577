#pragma once

#include "core/record/thread_log.h"
#include "core/record/trace_file.h"
#include "core/record/trace_format.h"

#include <cstdint>

namespace cachealloc {

/// A thread's place in the history. Zero: it has none.
struct RingPlace {
    trace::Chunk* chunk;
    std::uint64_t claim; ///< the chunk's ChunkHeader::claim
    std::uint32_t next;  ///< index of the record to write
};

/// The history: chunks in a ring, each written by the one thread that claimed it.
///
/// Invariant: a chunk is owned by whoever put itself into ChunkHeader::owner, from 0 or in place of
/// a thread that is gone, by one compare and swap; only the owner writes to it. A record's sequence
/// is stored last. Every record ever committed is in the ring or was counted in
/// Counters::overwritten.
///
/// A claim takes the next slot, the oldest chunk once the ring is full; chunks that other threads
/// still write are passed over, so that more threads than chunks cost events (which the caller
/// counts as lost), never a wait. The ring grows while there is space. Lock-free.
class EventRing {
  public:
    EventRing(TraceFile& file, SectionSpace& space, const ThreadLog& threads);

    /// Whether `place` has a record to write, claiming a chunk for `thread` if need be; false where
    /// no chunk is to be had. `fresh` says that a chunk was claimed. A claim may allocate the
    /// ring's next step if grow_ahead() was not called in time.
    bool ready(RingPlace& place, std::uint32_t thread, bool& fresh) {
        fresh = false;
        if (place.chunk != nullptr && place.next < trace::kChunkRecords) return true;
        return claim(place, thread, fresh);
    }

    /// The sequence that the next record of a ready place gets.
    static std::uint64_t next_sequence(const RingPlace& place) {
        return trace::event_sequence(place.claim, place.next);
    }

    /// Writes `record`, whose sequence is next_sequence() and whose check word is right. `place` is
    /// ready().
    static void commit(RingPlace& place, const trace::EventRecord& record);

    /// The thread writes no more to its chunk.
    static void close(RingPlace& place);

    /// Allocates the next step if the ring will need it soon, so that claims need not. Makes system
    /// calls.
    void grow_ahead();

  private:
    bool claim(RingPlace& place, std::uint32_t thread, bool& fresh);
    bool take(trace::ChunkHeader& header, std::uint32_t thread, std::uint64_t number) const;
    std::uint64_t chunks() const { return space_.ready() / trace::kChunkBytes; }
    bool grow();
    void populate(std::uint64_t claimed);

    static constexpr std::uint64_t kPopulateBytes = 256 << 10;

    /// A search over a ring full of other threads' chunks ends after so many; the next event goes
    /// on from there.
    static constexpr int kTries = 64;

    TraceFile& file_;
    SectionSpace& space_;
    const ThreadLog& threads_;
    trace::Chunk* const chunks_;
    std::atomic<std::uint64_t> populated_{0}; ///< bytes from the start whose pages are there
};

} // namespace cachealloc
