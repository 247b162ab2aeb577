#pragma once

#include "core/pool/types.h"

#include <cstdint>

namespace cachealloc {

/// Remembers where a request was placed in which state of the program: its size, the live bytes
/// after it and the request before it. A periodic program comes back to the same states and so to
/// the same layout, for which all stitches exist already; any other program never matches.
///
/// Invariant: what it says is a hint; whoever asks checks that the place is free. Not thread-safe:
/// the heap's lock guards it. O(1); 128 KiB of host memory, made at first use.
class Affinity {
  public:
    Affinity() = default;
    Affinity(const Affinity&) = delete;
    Affinity& operator=(const Affinity&) = delete;
    ~Affinity();

    /// Names a state; never 0.
    static std::uint64_t key(std::uint64_t size, std::uint64_t live_after,
                             std::uint64_t previous_size);

    /// The place of the last request in this state, or 0.
    DeviceAddress recall(std::uint64_t key) const {
        if (slots_ == nullptr) return 0;
        const Slot& slot = slots_[(key >> 1) % kSlots];
        return slot.key == key ? slot.place : 0;
    }

    void remember(std::uint64_t key, DeviceAddress place);

  private:
    /// With 1,024 a training step of 408 requests forgot its places (7.9 new stitches a step
    /// instead of none); 65,536 are no better.
    static constexpr std::uint64_t kSlots = 8192;

    struct Slot {
        std::uint64_t key;
        DeviceAddress place;
    };
    Slot* slots_ = nullptr;
};

} // namespace cachealloc
