// When events were recorded, as seen from frees: the clock counts records, and a free notes what it
// says. So a free costs one load, and "was this event recorded before that free?" needs no memory
// shared among threads that free.
//
// Invariant: after() is true only for an event whose last record through the shim began when the
// clock had passed `time`, before() only for one whose last record of any kind did not. Neither
// holds for what the table has lost, nor before() for anything that a graph may have recorded
// since.
//
// Lock-free. An entry is two words: the number, and the event's handle mixed with it; words of two
// entries that were written at once do not fit each other and count as lost.
#pragma once

#include "shim/cuda_types.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cachealloc::shim {

class RecordTimes {
  public:
    // To be noted by a free, on its entry.
    std::uint64_t now() const { return clock_.load(std::memory_order_seq_cst); }

    // The event is about to be recorded.
    void recording(CUevent event);

    // Some events are being recorded, and it is not known which (by a graph).
    void forget_all() { forgotten_.store(now(), std::memory_order_seq_cst); }

    // Whether the event was recorded after a free that noted `time` had begun.
    bool after(CUevent event, std::uint64_t time) const;

    // Whether it was last recorded before such a free.
    bool before(CUevent event, std::uint64_t time) const;

  private:
    static constexpr std::size_t kEntries = 2048;
    struct Entry {
        std::atomic<std::uint64_t> number{0};
        std::atomic<std::uint64_t> mixed{0};
    };

    static std::uint64_t key(CUevent event) { return reinterpret_cast<std::uintptr_t>(event); }
    static std::uint64_t mix(std::uint64_t key, std::uint64_t number) {
        return key ^ number * 0x9E3779B97F4A7C15ULL;
    }
    static std::size_t place(CUevent event) {
        return static_cast<std::size_t>(key(event) * 0xD1B54A32D192ED03ULL >> 40) % kEntries;
    }

    // The number of the event's last record, 0 if the table has lost it.
    std::uint64_t recorded(CUevent event) const;

    std::atomic<std::uint64_t> clock_{1};
    std::atomic<std::uint64_t> forgotten_{0}; // what was recorded up to here says nothing any more
    std::array<Entry, kEntries> entries_{};
};

} // namespace cachealloc::shim
