#include "tools/analysis/fragmentation.h"

#include <algorithm>
#include <tuple>

namespace cachealloc::tools {

namespace {

/// A segment counts as pinned where live blocks fill at most this share of it.
constexpr std::uint64_t kPinnedShare = 4;
/// Smaller segments are not worth a line.
constexpr std::uint64_t kLeastSegment = std::uint64_t{4} << 20;

struct Piece {
    const Block* block;
    bool live;
};

/// All blocks of the device's pool, by address; of two at one address the live one first.
std::vector<Piece> pieces_of(const State& state, std::uint8_t device) {
    std::vector<Piece> pieces;
    state.live().for_each([&](const Place&, const Block& block) {
        if (block.memory == trace::MemoryType::pooled && block.device == device)
            pieces.push_back({&block, true});
    });
    for (const auto& [address, block] : state.pending()) {
        if (block.device == device) pieces.push_back({&block, false});
    }
    std::ranges::sort(pieces, [](const Piece& a, const Piece& b) {
        return std::tie(a.block->address, b.live) < std::tie(b.block->address, a.live);
    });
    return pieces;
}

/// Goes through one segment's blocks.
class SegmentSweep {
  public:
    explicit SegmentSweep(const MemorySegment& segment) : reached_(segment.address) {
        pin_.segment = segment;
    }

    /// Blocks come by address. What overlaps an earlier one, or ends outside, counts in part.
    void take(const Piece& piece) {
        const Block& block = *piece.block;
        const std::uint64_t end = pin_.segment.address + pin_.segment.size;
        const std::uint64_t from = std::max(block.address, reached_);
        const std::uint64_t to = std::min(block.address + block.bytes(), end);
        if (from >= to) return;
        gap(from);
        reached_ = to;
        if (!piece.live) {
            stream_ += to - from;
            return;
        }
        const std::uint64_t asked = std::max(block.address + block.size, from);
        const std::uint64_t rounding = to > asked ? to - asked : 0;
        live_ += to - from - rounding;
        rounding_ += rounding;
        pin_.live += to - from;
        if (pin_.blocks++ == 0 || block.since < pin_.oldest.since) pin_.oldest = block;
    }

    /// A second mapping: what is in it takes up memory of other segments.
    [[nodiscard]] std::uint64_t finish_second(Fragmentation& sum) const {
        sum.live += live_;
        sum.rounding += rounding_;
        sum.stream += stream_;
        return live_ + rounding_ + stream_;
    }

    void finish(Fragmentation& sum) {
        gap(pin_.segment.address + pin_.segment.size);
        ++sum.segments;
        sum.reserved += pin_.segment.size;
        sum.live += live_;
        sum.rounding += rounding_;
        sum.stream += stream_;
        (pin_.blocks != 0 ? sum.hard : sum.soft) += pin_.free;
        sum.largest_free = std::max(sum.largest_free, largest_);
        if (pin_.blocks != 0 && pin_.segment.size >= kLeastSegment &&
            pin_.live <= pin_.segment.size / kPinnedShare)
            sum.pins.push_back(pin_);
    }

  private:
    void gap(std::uint64_t to) {
        pin_.free += to - reached_;
        largest_ = std::max(largest_, to - reached_);
    }

    Pin pin_;
    std::uint64_t reached_;
    std::uint64_t live_ = 0;
    std::uint64_t rounding_ = 0;
    std::uint64_t stream_ = 0;
    std::uint64_t largest_ = 0;
};

} // namespace

Fragmentation fragmentation_of(const State& state, std::uint8_t device, std::size_t most_pins) {
    Fragmentation sum;
    const std::vector<Piece> pieces = pieces_of(state, device);
    auto next = pieces.begin();
    const auto outside = [&](const Piece& piece) {
        if (piece.live) sum.outside += piece.block->bytes();
    };
    std::uint64_t elsewhere = 0;  // in second mappings
    const Piece* last = nullptr;  // the last block of the segment before
    std::uint64_t before_end = 0; // where that ends
    for (const auto& [address, segment] : state.segments()) {
        if (segment.device != device) continue;
        for (; next != pieces.end() && next->block->address < address; ++next)
            outside(*next);
        SegmentSweep sweep(segment);
        // Growable memory is recorded piece by piece, and blocks reach over their borders.
        if (last != nullptr && before_end == address) {
            sweep.take(*last);
        } else {
            last = nullptr;
        }
        for (; next != pieces.end() && next->block->address - address < segment.size; ++next) {
            sweep.take(*next);
            last = &*next;
        }
        before_end = address + segment.size;
        if (segment.second) {
            elsewhere += sweep.finish_second(sum);
        } else {
            sweep.finish(sum);
        }
    }
    for (; next != pieces.end(); ++next)
        outside(*next);
    // Which pieces a second mapping shows is not recorded. They hold nothing else, but for the
    // last.
    const std::uint64_t whole = std::min(sum.soft, elsewhere);
    sum.soft -= whole;
    sum.hard -= std::min(sum.hard, elsewhere - whole);
    std::ranges::sort(sum.pins, [](const Pin& a, const Pin& b) {
        return std::tie(b.free, a.segment.address) < std::tie(a.free, b.segment.address);
    });
    if (sum.pins.size() > most_pins) sum.pins.resize(most_pins);
    return sum;
}

} // namespace cachealloc::tools
