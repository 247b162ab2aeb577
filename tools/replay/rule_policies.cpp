#include "tools/replay/rule_policies.h"

#include "tools/replay/free_blocks.h"

#include <algorithm>
#include <chrono>
#include <memory>

namespace cachealloc::tools {

namespace {

constexpr std::uint64_t kSmallSegment = 2 * kMiB;
constexpr std::uint64_t kLargeSegment = 20 * kMiB;
constexpr std::uint64_t kLeastOwnSegment = 10 * kMiB;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) {
    return (bytes + to - 1) / to * to;
}

/// Where requests of a sequence go.
class Placement {
  public:
    explicit Placement(std::uint64_t limit) : limit_(limit) {}
    virtual ~Placement() = default;

    /// The place, or no place where the limit is met.
    virtual bool place(std::uint64_t bytes, std::uint64_t& address) = 0;
    void release(std::uint64_t address) { blocks_.release(blocks_.at(address)); }

    [[nodiscard]] std::uint64_t reserved() const { return reserved_; }
    [[nodiscard]] std::uint64_t peak() const { return peak_; }
    [[nodiscard]] std::uint64_t largest_free() const { return blocks_.largest_free(); }
    [[nodiscard]] const DriverCalls& calls() const { return calls_; }
    [[nodiscard]] std::uint64_t splits() const { return splits_; }

  protected:
    bool reserve(std::uint64_t bytes) {
        if (bytes > limit_ - reserved_) return false;
        reserved_ += bytes;
        peak_ = std::max(peak_, reserved_);
        return true;
    }

    const std::uint64_t limit_;
    FreeBlocks blocks_;
    std::uint64_t reserved_ = 0;
    std::uint64_t peak_ = 0;
    std::uint64_t splits_ = 0;
    DriverCalls calls_;
};

class PytorchSegments final : public Placement {
  public:
    using Placement::Placement;

    bool place(std::uint64_t bytes, std::uint64_t& address) override {
        const bool small = bytes <= kMiB;
        const auto kind = static_cast<std::uint8_t>(small ? 0 : 1);
        auto found = blocks_.find(kind, bytes);
        if (found == blocks_.end()) {
            const std::uint64_t segment = small                      ? kSmallSegment
                                          : bytes < kLeastOwnSegment ? kLargeSegment
                                                                     : round_up(bytes, kGranule);
            if (!reserve(segment)) {
                release_cached();
                if (!reserve(segment)) return false;
            }
            ++calls_.allocate;
            blocks_.add(next_, {segment, next_, kind, true});
            found = blocks_.at(next_);
            next_ += segment + kGranule;
        }
        address = found->first;
        splits_ += blocks_.take(found, bytes, small ? kBlockAlignment : kMiB + 1) ? 1 : 0;
        return true;
    }

  private:
    /// Segments that are free as a whole.
    void release_cached() {
        for (auto at = blocks_.begin(); at != blocks_.end();) {
            const auto here = at++;
            if (!here->second.free || here->first != here->second.owner ||
                (at != blocks_.end() && at->second.owner == here->second.owner))
                continue;
            reserved_ -= here->second.bytes;
            ++calls_.release;
            blocks_.remove(here);
        }
    }

    std::uint64_t next_ = kGranule;
};

/// Ranges that grow at their ends, each by pages of its own size.
class GrowingRanges final : public Placement {
  public:
    /// Requests above `small_up_to` go to the second range. `tail_last`: a range's free end serves
    /// where no hole does.
    GrowingRanges(std::uint64_t limit, std::uint64_t small_up_to, std::uint64_t small_page,
                  std::uint64_t large_page, bool tail_last)
        : Placement(limit), small_up_to_(small_up_to), pages_{small_page, large_page},
          tail_last_(tail_last) {}

    bool place(std::uint64_t bytes, std::uint64_t& address) override {
        const auto kind = static_cast<std::uint8_t>(bytes <= small_up_to_ ? 0 : 1);
        const std::uint64_t base = std::uint64_t{kind + 1U} << 56;
        auto found = tail_last_ ? blocks_.find_before(kind, bytes, base + used_[kind])
                                : blocks_.find(kind, bytes);
        if (found == blocks_.end()) {
            const std::uint64_t tail = blocks_.free_below(base + used_[kind], base);
            const std::uint64_t grown = round_up(bytes - tail, pages_[kind]);
            if (!reserve(grown)) return false;
            ++calls_.grow;
            calls_.pieces += grown / pages_[kind];
            blocks_.add(base + used_[kind], {grown, base, kind, true});
            used_[kind] += grown;
            found = blocks_.find(kind, bytes);
        }
        address = found->first;
        splits_ += blocks_.take(found, bytes, 1) ? 1 : 0;
        return true;
    }

  private:
    const std::uint64_t small_up_to_;
    const std::uint64_t pages_[2];
    const bool tail_last_;
    std::uint64_t used_[2] = {};
};

std::unique_ptr<Placement> placement(Rules rules, std::uint64_t limit) {
    switch (rules) {
    case Rules::pytorch:
        return std::make_unique<PytorchSegments>(limit);
    case Rules::pytorch_expandable:
        return std::make_unique<GrowingRanges>(limit, kMiB, kSmallSegment, kLargeSegment, false);
    case Rules::one_range:
        return std::make_unique<GrowingRanges>(limit, 0, 1, 1, true);
    }
    return nullptr;
}

} // namespace

const char* rules_name(Rules rules) {
    static constexpr const char* kNames[] = {"pytorch", "pytorch-expandable", "one-range"};
    return kNames[static_cast<std::size_t>(rules)];
}

ReplayResult replay_rules(const AllocationSequence& sequence, Rules rules, unsigned steps,
                          std::uint64_t limit) {
    ReplayResult result;
    result.policy = rules_name(rules);
    const SteadyPart steady(sequence, steps);
    result.steady_steps = steady.steps;
    const std::unique_ptr<Placement> heap = placement(rules, limit);
    std::vector<std::uint64_t> placed(sequence.ids);
    DriverCalls first;
    std::uint64_t requested = 0;
    std::uint64_t rounded = 0;
    const auto start = std::chrono::steady_clock::now();
    for (const SequenceEvent& event : sequence.events) {
        if (result.events == steady.begin) first = heap->calls();
        const std::uint64_t bytes = aligned_bytes(event.bytes);
        if (event.op == SequenceOp::allocate) {
            if (!heap->place(bytes, placed[event.id])) {
                result.failure = ReplayFailure{result.events,    event.bytes,          requested,
                                               heap->reserved(), heap->largest_free(), limit};
                break;
            }
            ++result.allocations;
            requested += event.bytes;
            rounded += bytes;
            result.peak_requested = std::max(result.peak_requested, requested);
            result.peak_rounded = std::max(result.peak_rounded, rounded);
        } else if (event.op == SequenceOp::release) {
            heap->release(placed[event.id]);
            requested -= event.bytes;
            rounded -= bytes;
        }
        ++result.events;
    }
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.peak_reserved = heap->peak();
    result.calls = heap->calls();
    result.steady = calls_since(result.calls, first);
    result.splits = heap->splits();
    return result;
}

} // namespace cachealloc::tools
