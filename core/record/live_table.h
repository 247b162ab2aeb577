#pragma once

#include "core/record/spin_lock.h"
#include "core/record/trace_format.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cachealloc {

/// In which space the address of that event means something.
constexpr trace::AddressSpace space_of_event(const trace::EventRecord& record) {
    return record.kind == trace::EventKind::segment_alloc ||
                   record.kind == trace::EventKind::segment_map
               ? trace::AddressSpace::segment
               : trace::space_of(record.memory);
}

/// The fields but `sequence`, which publishes a record: a reader of the file sees either what was
/// there before or, once `sequence` is stored with release, all of it.
void copy_content(trace::EventRecord& to, const trace::EventRecord& from);

/// What is live: the record of its allocation, found by space and address. In the file, so that it
/// outlives the process.
///
/// Invariant: an entry whose sequence is not 0 is whole, and an entry that was inserted and not
/// taken is in the table at every instant, whenever the process is killed. Moving an entry puts it
/// at its new place before it leaves the old one; so a killed process may leave it twice, with the
/// same sequence.
///
/// kLiveShards shards, a lock each, linear probing within the shard. All functions are O(1) but
/// take_if, thread-safe, and not to be called by a signal handler that interrupted one of them.
class LiveTable {
  public:
    /// `slots` of zeroed memory, a multiple of kLiveShards that gives shards of a power of two.
    LiveTable(trace::EventRecord* slots, std::size_t count);

    /// Whether there was room. What is there under the same space and address is replaced and comes
    /// back in `replaced` (else its sequence is 0): that memory ended without our seeing it.
    bool insert(const trace::EventRecord& record, trace::EventRecord& replaced);
    bool find(trace::AddressSpace space, std::uint64_t address, trace::EventRecord& found);
    bool take(trace::AddressSpace space, std::uint64_t address, trace::EventRecord& taken);

    /// Takes one entry that `chosen` wants, of the shard `shard` or a later one, and leaves the
    /// entry's shard in `shard`; false when there is none. `chosen` runs under the shard's lock.
    bool take_if(bool (*chosen)(const trace::EventRecord&, void* context), void* context,
                 std::uint32_t& shard, trace::EventRecord& taken);

    /// Has the processor fetch what the next call for that memory looks at.
    void prefetch(trace::AddressSpace space, std::uint64_t address) {
        const Place place = place_of(space, address);
        __builtin_prefetch(place.shard, 1);
        __builtin_prefetch(place.slots + place.home, 1);
    }

    /// Makes the next pages of the table present, a few at a call, until all are: each met for the
    /// first time costs 3.5 us, asked for together a fifth. Any thread; a system call, or nothing.
    void populate_some();

    /// How many there are, up to what other threads do meanwhile. O(kLiveShards).
    std::uint64_t size() const;

    /// A shard is filled up to this: probing stays short.
    static constexpr std::size_t kFullEighths = 7;

  private:
    struct alignas(64) Shard {
        SpinLock lock;
        std::atomic<std::uint32_t> count; ///< written under the lock
    };
    struct Place {
        Shard* shard;
        trace::EventRecord* slots;
        std::size_t home;
    };

    Place place_of(trace::AddressSpace space, std::uint64_t address);
    std::size_t search(const Place& place, trace::AddressSpace space, std::uint64_t address) const;
    void remove(const Place& place, std::size_t hole);

    static constexpr std::size_t kPopulateBytes = 128 << 10;

    trace::EventRecord* const slots_;
    std::atomic<std::size_t> populated_{0}; ///< bytes whose pages are there
    const std::size_t mask_;                ///< of a place within a shard
    std::array<Shard, trace::kLiveShards> shards_{};
};

} // namespace cachealloc
