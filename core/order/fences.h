#pragma once

#include "core/order/rules.h"
#include "core/order/stream_order.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace cachealloc {

/// Reading of a context's fence clock. See Fences.
using Stamp = std::uint64_t;

/// How careful reuse within one context has to be. A program only ever moves down the list.
enum class OrderLevel : std::uint32_t {
    ordered,  ///< all work of the context is totally ordered: every free settles at once
    fenced,   ///< fences and barriers
    finished, ///< writers that no barrier holds up exist: only finished blocks are handed out
    wait,     ///< the driver has no context events: every free waits
};

/// The fences of one context: numbers, events and what has been settled.
///
/// Invariant. A block's *stamp* is the clock read on entry to its free. An event's *number* is
/// taken by advancing the clock, before the event is recorded. So an event covers the work before
/// every free whose stamp is below its number: once event n has finished, all stamps below n are
/// *finished*; once all later work waits for event n, all stamps below n are *settled*. Advancing
/// after recording would let one thread's number overtake another's record (2 of 6 interleavings of
/// two threads then settle a block early); publishing "waited" before the wait succeeded would hand
/// out blocks that nothing orders.
///
/// Events live in a ring of kEvents. Slot n % kEvents belongs to number n until n has been recorded
/// and finished; only then may number n + kEvents record into it.
///
/// Thread-safe, no lock. Functions that may wait say so.
class Fences {
  public:
    static constexpr std::uint32_t kEvents = 1024;

    /// `order` must outlive this object.
    Fences(StreamOrder& order, OrderLevel level) : order_(order), level_(level) {}

    /// Which event of the ring stands for a number.
    static std::uint32_t event_of(std::uint64_t number) {
        return static_cast<std::uint32_t>(number % kEvents);
    }

    /// To be read on entry to a free, before anything else.
    Stamp stamp() const { return clock_.load(std::memory_order_seq_cst); }

    /// Records a fence over all work so far. `may_wait` says that natively this point waits for it:
    /// when every event of the ring is outstanding it waits for the oldest, else it is refused.
    /// Returns done, refused, failed or lost.
    OrderResult fence(bool may_wait);

    /// True if all work before the frees with this stamp has finished.
    bool finished(Stamp stamp) const { return stamp < finished_.load(std::memory_order_acquire); }

    /// True if memory freed with this stamp may be handed out: its earlier users have finished or,
    /// where `barrier_counts`, everything submitted later waits for them.
    bool settled(Stamp stamp, bool barrier_counts) const {
        if (finished(stamp)) return true;
        if (!barrier_counts && rule_on(Rule::finished_only)) return false;
        // In this order: a barrier seen here was published before the level changed, if it did, so
        // whoever changed it waits for that barrier.
        const Stamp waited = waited_.load(std::memory_order_seq_cst);
        if (level() == OrderLevel::finished && rule_on(Rule::finished_level)) return false;
        return stamp < waited;
    }

    /// Asks the driver about at most two outstanding events. True if more stamps are finished than
    /// before. Cost: two queries (about 0.4 us each), amortised over half of what is outstanding.
    bool poll();

    /// Makes all later work wait, on the device, for a fence that covers `stamp`; afterwards
    /// settled(stamp, true). Returns done, refused, failed or lost.
    OrderResult barrier(Stamp stamp);

    /// The same with the youngest fence of a free that natively waits: settles everything such
    /// frees have left so far with one wait, but holds up more where several streams are busy.
    /// Younger fences of frees that natively do not wait give no right to hold up later work: what
    /// is before them may be waiting for it.
    OrderResult barrier_behind_all();

    /// Makes one stream's later work wait, on the device, for a fence that covers `stamp`; nothing
    /// else waits, and nothing is settled by it. Returns done, refused, failed or lost.
    OrderResult stream_wait(Stamp stamp, StreamHandle stream);

    /// Fences taken after the first one that covers `stamp`.
    std::uint64_t younger_than(Stamp stamp) const {
        const std::uint64_t now = clock_.load(std::memory_order_relaxed);
        return now > stamp + 1 ? now - stamp - 1 : 0;
    }

    /// Waits on the host until finished(stamp). Returns done, failed or lost.
    OrderResult host_wait(Stamp stamp);

    /// Waits on the host for all work of the context; afterwards every stamp read before is
    /// finished. Returns done, refused, failed or lost.
    OrderResult synchronize();

    /// Whether a recorded fence covers `stamp`, or it is finished: without one it never would be.
    bool covered(Stamp stamp) const { return finished(stamp) || first_recorded_above(stamp) != 0; }

    /// The highest stamp that a barrier has settled.
    Stamp last_barrier() const { return waited_.load(std::memory_order_seq_cst) - 1; }

    /// Number of fences recorded and not known to be finished.
    std::uint64_t outstanding() const {
        const std::uint64_t now = clock_.load(std::memory_order_relaxed);
        const std::uint64_t done = finished_.load(std::memory_order_relaxed);
        return now > done ? now - done : 0;
    }

    OrderLevel level() const { return level_.load(std::memory_order_seq_cst); }

    /// Moves down the list of levels; never up.
    void lower(OrderLevel level);

    /// The native error once the context is lost, else 0. Never goes back to 0.
    int lost() const { return lost_.load(std::memory_order_acquire); }

    /// Remembers a lost context. Returns `result`.
    OrderResult note(OrderResult result);

    StreamOrder& order() const { return order_; }

  private:
    static constexpr std::uint64_t kFirstNumber = 2; ///< the clock starts at 1

    /// Which number the slot's event stands for, and whether its record succeeded.
    struct Slot {
        std::atomic<std::uint64_t> number_and_ok{0};
    };

    Slot& slot(std::uint64_t number) { return slots_[number % kEvents]; }
    bool recorded(std::uint64_t number) const {
        return slots_[number % kEvents].number_and_ok.load(std::memory_order_acquire) ==
               (number << 1 | 1);
    }
    bool slot_is_free(std::uint64_t number) const;
    bool take_number(bool may_wait, std::uint64_t& number);
    OrderResult await_slot(std::uint64_t number);
    OrderStatus ask(std::uint64_t number);
    std::uint64_t first_recorded_above(Stamp stamp) const;
    OrderResult wait_for(std::uint64_t number);

    StreamOrder& order_;
    std::atomic<OrderLevel> level_;
    std::atomic<int> lost_{0};
    std::atomic<std::uint64_t> clock_{1};
    std::atomic<std::uint64_t> finished_{1};
    std::atomic<std::uint64_t> waited_{1};
    std::atomic<std::uint64_t> youngest_waiting_{0}; ///< number of the youngest fence with may_wait
    std::array<Slot, kEvents> slots_{};
};

} // namespace cachealloc
