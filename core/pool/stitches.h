#pragma once

#include "core/pool/memory_source.h"
#include "core/pool/segment.h"

#include <array>
#include <cstdint>

namespace cachealloc {

/// A second mapping of runs of whole pieces of a range, one behind the other: contiguous addresses
/// for a request that no free block holds. It outlives its block, so that a program that asks again
/// pays nothing.
struct Stitch : Segment {
    static constexpr std::uint32_t kMostRuns = 64;

    enum class Use : std::uint8_t {
        empty,   ///< a slot without addresses
        idle,    ///< holds no memory; its block is in nobody's hands
        live,    ///< its block, and so the pieces that `held` names, are in somebody's hands
        changing ///< on its way to the driver
    };
    Use use = Use::empty;
    std::uint32_t run_count = 0;
    std::uint32_t held_count = 0;
    std::uint64_t last_use = 0;
    std::uint64_t idle_since = 0;         ///< reading of the fence clock
    std::array<PieceRun, kMostRuns> runs; ///< what it maps, in its order
    std::array<Block*, kMostRuns> held;   ///< blocks of the range, `stitched`
};

/// The stitches of one range.
///
/// Invariant: a stitch that is not empty has a block, its `first`; it holds blocks of the range
/// exactly while it is live or changing, namely the first bytes of its runs, in order. Slots are
/// never given back, so a Segment pointer read from the address map may be followed.
///
/// Not thread-safe: the heap's lock guards it. O(slots) where not said otherwise; about 100 KiB of
/// host memory, made at first use.
class Stitches {
  public:
    static constexpr std::uint32_t kSlots = 64;

    Stitches() = default;
    Stitches(const Stitches&) = delete;
    Stitches& operator=(const Stitches&) = delete;
    ~Stitches();

    /// A slot that is empty, or null: all are taken, or the host has no memory.
    Stitch* empty_slot();

    /// The stitch that starts at an address, or null.
    Stitch* at(DeviceAddress address);

    /// The smallest idle stitch of at least `size` bytes for which `fits(stitch)`, or null.
    template <class Fits>
    Stitch* smallest(std::uint64_t size, Fits fits) {
        Stitch* best = nullptr;
        for (std::uint32_t i = 0; i < made_; ++i) {
            Stitch& stitch = slots_[i];
            if (stitch.use != Stitch::Use::idle || stitch.size < size ||
                (best != nullptr && best->size <= stitch.size)) {
                continue;
            }
            if (fits(stitch)) best = &stitch;
        }
        return best;
    }

    /// The idle stitch whose last use is longest ago, of those for which `fits(stitch)`, or null.
    template <class Fits>
    Stitch* oldest(Fits fits) {
        Stitch* best = nullptr;
        for (std::uint32_t i = 0; i < made_; ++i) {
            Stitch& stitch = slots_[i];
            if (stitch.use != Stitch::Use::idle ||
                (best != nullptr && best->last_use <= stitch.last_use)) {
                continue;
            }
            if (fits(stitch)) best = &stitch;
        }
        return best;
    }

    /// The one in slot `index`, or null if that is empty. O(1).
    const Stitch* in_slot(std::uint32_t index) const {
        return index < made_ && slots_[index].use != Stitch::Use::empty ? &slots_[index] : nullptr;
    }

    /// Calls visit(stitch) for every one that is not empty; visit() may drop it.
    template <class Visit>
    void each(Visit visit) {
        for (std::uint32_t i = 0; i < made_; ++i) {
            if (slots_[i].use != Stitch::Use::empty) visit(slots_[i]);
        }
    }

    /// Notes a use. O(1).
    void touch(Stitch& stitch) { stitch.last_use = ++uses_; }

    /// Empties a slot. O(1).
    static void drop(Stitch& stitch) { stitch.use = Stitch::Use::empty; }

  private:
    std::uint64_t uses_ = 0;
    std::uint32_t made_ = 0; ///< slots that were ever used
    Stitch* slots_ = nullptr;
};

} // namespace cachealloc
