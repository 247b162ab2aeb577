#include "tools/replay/pool_replay.h"

#include "core/device_pool.h"
#include "tools/replay/simulated_order.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

namespace cachealloc::tools {

namespace {

/// A process has one map and one arena; their memory is never given back, so replays share them.
struct Host {
    AddressMap map;
    BlockArena arena;
};

Host& host() {
    static const std::unique_ptr<Host> only = std::make_unique<Host>();
    return *only;
}

/// Remembers what is freed and not yet fit for reuse.
class PendingBlocks final : public PoolObserver {
  public:
    void freed(const cachealloc::Block& block, bool settled) override {
        if (!settled) bytes_[block.address] = block.size;
    }
    void settled(const cachealloc::Block& block) override { bytes_.erase(block.address); }
    void segment_allocated(std::uint64_t, std::uint64_t, bool) override {}
    void segment_freed(std::uint64_t, std::uint64_t, bool) override {}

    [[nodiscard]] const std::map<DeviceAddress, std::uint64_t>& bytes() const { return bytes_; }

  private:
    std::map<DeviceAddress, std::uint64_t> bytes_;
};

/// As recorded. Else only where some release is not settled at once were fences at work, and
/// streams told apart.
OrderLevel level_for(const AllocationSequence& sequence) {
    if (sequence.recorded && sequence.recorded->level)
        return static_cast<OrderLevel>(*sequence.recorded->level);
    const bool ordered = std::ranges::all_of(sequence.events, &SequenceEvent::settled);
    return ordered ? OrderLevel::ordered : OrderLevel::fenced;
}

/// A release that was settled at once: by a barrier on the device, or the host waited, which
/// settles what releases that do not wait left before it too.
FreeKind settled_kind(const AllocationSequence& sequence) {
    const bool waited = sequence.recorded && sequence.recorded->host_waited;
    const bool no_barriers = level_for(sequence) >= OrderLevel::finished;
    return waited || no_barriers ? FreeKind::waits_on_host : FreeKind::waits_on_device;
}

/// The peak of reserved memory; of equal moments the one with most live: when a segment has just
/// come, what it was made for is not in it yet.
struct PeakMoment {
    std::uint64_t reserved = 0;
    std::uint64_t live = 0;
    std::size_t event = 0;

    void see(std::uint64_t now, std::uint64_t live_now, std::size_t at) {
        if (now < reserved || (now == reserved && live_now <= live)) return;
        *this = {now, live_now, at};
    }
};

/// A device that was full made the pool give memory back, which one without end would not.
std::uint64_t limit_of(const AllocationSequence& sequence, const ReplaySettings& settings) {
    const bool chosen = settings.limit != SimulatedSource::kNoLimit;
    if (chosen || !sequence.recorded || sequence.recorded->device_bytes == 0) return settings.limit;
    return sequence.recorded->device_bytes;
}

/// One run of the pool.
class Run {
  public:
    Run(const AllocationSequence& sequence, const ReplaySettings& settings, PoolObserver* observer)
        : sequence_(sequence), source_(limit_of(sequence, settings),
                                       sequence.recorded ? &sequence.recorded->segments : nullptr),
          order_(sequence.streams > 1), level_(level_for(sequence)),
          settled_kind_(settled_kind(sequence)),
          pool_(std::make_unique<DevicePool>(host().map, host().arena, source_, order_, level_,
                                             settings.options, observer)),
          placed_(sequence.ids), release_of_(level_ == OrderLevel::ordered ? 0 : sequence.ids) {}

    /// The pool's blocks and addresses are forgotten, so that the next run finds none of them.
    ~Run() { pool_->bury(); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// Goes on to before event `end`; false once a request failed.
    bool advance(std::size_t end) {
        for (; next_ < end; ++next_) {
            const SequenceEvent& event = sequence_.events[next_];
            if (event.op == SequenceOp::allocate) {
                if (!allocate(event)) return false;
            } else if (event.op == SequenceOp::release) {
                release(event);
            } else {
                if (level_ != OrderLevel::ordered)
                    order_.complete(release_of_[event.id], event.ordered_by_stream);
            }
        }
        return true;
    }

    void check() const {
        if (!source_.fault().empty())
            throw std::logic_error("the pool broke a rule of its source: " + source_.fault());
    }

    [[nodiscard]] std::size_t position() const { return next_; }
    [[nodiscard]] const SimulatedSource& source() const { return source_; }
    [[nodiscard]] const DevicePool& pool() const { return *pool_; }
    [[nodiscard]] const PeakMoment& peak() const { return peak_; }
    [[nodiscard]] std::uint64_t peak_requested() const { return peak_requested_; }
    [[nodiscard]] std::uint64_t peak_rounded() const { return peak_rounded_; }
    [[nodiscard]] std::uint64_t requested() const { return requested_; }
    [[nodiscard]] std::uint64_t allocations() const { return allocations_; }
    [[nodiscard]] Fragmentation fragmentation(const PendingBlocks& pending) const;

  private:
    struct Placed {
        DeviceAddress address = 0;
        std::uint64_t bytes = 0; ///< 0: not live
    };

    static NamedStream named(std::uint32_t stream) { return {stream + 1U, stream + 1U}; }

    [[nodiscard]] bool by_stream(const SequenceEvent& event) const {
        return event.ordered_by_stream && level_ != OrderLevel::ordered;
    }

    bool allocate(const SequenceEvent& event) {
        PoolResult result;
        result.status = PoolStatus::pass_through;
        if (by_stream(event)) result = pool_->allocate_async(event.bytes, named(event.stream));
        if (result.status == PoolStatus::pass_through) result = pool_->allocate(event.bytes);
        if (result.status != PoolStatus::done) return false;
        placed_[event.id] = {result.address, result.size};
        ++allocations_;
        requested_ += event.bytes;
        rounded_ += result.size;
        peak_requested_ = std::max(peak_requested_, requested_);
        peak_rounded_ = std::max(peak_rounded_, rounded_);
        peak_.see(source_.reserved(), rounded_, next_);
        return true;
    }

    void release(const SequenceEvent& event) {
        Placed& placed = placed_[event.id];
        cachealloc::Block* const block = host().map.find(placed.address);
        if (level_ != OrderLevel::ordered) release_of_[event.id] = order_.release();
        if (by_stream(event)) {
            pool_->free_async(block, placed.address, named(event.stream));
        } else {
            pool_->free(block, placed.address,
                        event.settled ? settled_kind_ : FreeKind::waits_unnoticed);
        }
        requested_ -= event.bytes;
        rounded_ -= placed.bytes;
        placed.bytes = 0;
    }

    const AllocationSequence& sequence_;
    SimulatedSource source_;
    SimulatedOrder order_;
    const OrderLevel level_;
    const FreeKind settled_kind_;
    std::unique_ptr<DevicePool> pool_;
    std::vector<Placed> placed_; ///< by id
    std::vector<std::uint64_t> release_of_;
    std::size_t next_ = 0;
    std::uint64_t allocations_ = 0;
    std::uint64_t requested_ = 0;
    std::uint64_t rounded_ = 0;
    std::uint64_t peak_requested_ = 0;
    std::uint64_t peak_rounded_ = 0;
    PeakMoment peak_;
};

/// Each piece of growable memory counts as a segment: what holds no live byte of it could go back.
Fragmentation Run::fragmentation(const PendingBlocks& pending) const {
    State state;
    source_.for_each_memory([&](DeviceAddress address, std::uint64_t bytes) {
        state.add_segment({.address = address, .size = bytes});
    });
    const auto add = [&](DeviceAddress address, std::uint64_t bytes, std::uint64_t requested,
                         bool live) {
        source_.resolve(address, bytes, [&](DeviceAddress part, std::uint64_t length) {
            Block block;
            block.address = part;
            block.size = std::min(requested, length);
            block.extra = static_cast<std::uint32_t>(length - block.size);
            block.memory = trace::MemoryType::pooled;
            requested -= block.size;
            if (live) {
                state.add_live(block);
            } else {
                state.add_pending(block);
            }
        });
    };
    std::vector<std::uint64_t> requested(sequence_.ids);
    for (std::size_t i = 0; i < next_; ++i)
        requested[sequence_.events[i].id] = sequence_.events[i].bytes;
    for (std::uint32_t id = 0; id < sequence_.ids; ++id) {
        if (placed_[id].bytes != 0)
            add(placed_[id].address, placed_[id].bytes, requested[id], true);
    }
    for (const auto& [address, bytes] : pending.bytes())
        add(address, bytes, bytes, false);
    return fragmentation_of(state, 0, 0);
}

} // namespace

SteadyPart::SteadyPart(const AllocationSequence& sequence, unsigned step_count)
    : begin(sequence.events.size() / 3) {
    const auto later = std::count_if(
        sequence.events.begin() + static_cast<std::ptrdiff_t>(begin), sequence.events.end(),
        [](const SequenceEvent& event) { return event.op == SequenceOp::allocate; });
    if (sequence.ids != 0)
        steps = static_cast<double>(later) * step_count / static_cast<double>(sequence.ids);
}

DriverCalls calls_since(const DriverCalls& later, const DriverCalls& earlier) {
    static constexpr std::uint64_t DriverCalls::*kCounts[] = {
        &DriverCalls::allocate, &DriverCalls::release,    &DriverCalls::grow,
        &DriverCalls::shrink,   &DriverCalls::remaps,     &DriverCalls::drop,
        &DriverCalls::pieces,   &DriverCalls::piece_maps, &DriverCalls::single};
    DriverCalls difference;
    for (const auto count : kCounts)
        difference.*count = later.*count - earlier.*count;
    return difference;
}

ReplayResult replay_pool(const AllocationSequence& sequence, const ReplaySettings& settings) {
    ReplayResult result;
    result.policy = "cachealloc";
    const SteadyPart steady(sequence, settings.steps);
    result.steady_steps = steady.steps;
    PeakMoment peak;
    {
        Run run(sequence, settings, nullptr);
        const auto start = std::chrono::steady_clock::now();
        bool fits = run.advance(steady.begin);
        const DriverCalls first = run.source().calls();
        fits = fits && run.advance(sequence.events.size());
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        run.check();
        const PoolStatistics statistics = run.pool().statistics();
        peak = run.peak();
        result.seconds = spent.count();
        result.events = run.position();
        result.allocations = run.allocations();
        result.peak_requested = run.peak_requested();
        result.peak_rounded = run.peak_rounded();
        result.peak_reserved = run.source().peak();
        result.calls = run.source().calls();
        result.steady = calls_since(result.calls, first);
        result.splits = statistics.splits;
        result.stitches = statistics.stitches_made;
        result.affinity_hits = statistics.affinity_hits;
        if (!fits) {
            result.failure = ReplayFailure{run.position(),
                                           sequence.events[run.position()].bytes,
                                           run.requested(),
                                           run.source().reserved(),
                                           statistics.largest_free_bytes,
                                           limit_of(sequence, settings)};
        }
    }
    if (settings.fragmentation && result.allocations != 0) {
        PendingBlocks pending;
        Run again(sequence, settings, &pending);
        again.advance(peak.event + 1);
        result.fragmentation = again.fragmentation(pending);
        result.fragmentation->largest_free = again.pool().statistics().largest_free_bytes;
    }
    return result;
}

} // namespace cachealloc::tools
