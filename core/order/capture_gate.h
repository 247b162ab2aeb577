#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace cachealloc {

/// Keeps calls that would invalidate a stream capture away from open captures, process-wide.
///
/// Invariant: while a thread is inside (enter() returned true, leave() not yet called), no capture
/// that was announced with begin() has gone on to the driver; and while a capture is announced,
/// nobody new gets inside. Checking a flag and then calling the driver would race with another
/// thread's begin; so both sides announce themselves first and look second (sequentially
/// consistent), and the one inside is waited for.
///
/// It is the one thing of ours held across a driver call. Only where a free has to wait for the
/// device (level `wait`) does a thread inside do so, and begin() with it, as it natively would.
class CaptureGate {
  public:
    /// True: the caller is inside and must call leave(). False: a capture is open, nothing is held.
    bool enter() {
        std::atomic<std::uint32_t>& inside = inside_[shard()].count;
        inside.fetch_add(1, std::memory_order_seq_cst);
        if (open_.load(std::memory_order_seq_cst) == 0) return true;
        inside.fetch_sub(1, std::memory_order_release);
        return false;
    }

    void leave() { inside_[shard()].count.fetch_sub(1, std::memory_order_release); }

    /// Announces a capture before the driver is asked to begin it. Returns when nobody is inside.
    void begin();

    /// The capture has ended, or the driver refused to begin it.
    void end() { open_.fetch_sub(1, std::memory_order_seq_cst); }

    /// Number of open captures.
    std::int32_t open() const { return open_.load(std::memory_order_seq_cst); }

  private:
    static constexpr std::size_t kShards = 16;
    /// One cache line each: a shared counter would cost threads that free at once about 100 ns.
    struct alignas(64) Shard {
        std::atomic<std::uint32_t> count{0};
    };

    static std::size_t shard() {
        static thread_local char anchor;
        return (reinterpret_cast<std::uintptr_t>(&anchor) >> 12) % kShards;
    }

    std::atomic<std::int32_t> open_{0};
    std::array<Shard, kShards> inside_{};
};

/// Holds the gate for a scope, if it could be entered.
class GatePass {
  public:
    explicit GatePass(CaptureGate& gate) : gate_(gate), inside_(gate.enter()) {}
    ~GatePass() {
        if (inside_) gate_.leave();
    }
    GatePass(const GatePass&) = delete;
    GatePass& operator=(const GatePass&) = delete;
    bool inside() const { return inside_; }

  private:
    CaptureGate& gate_;
    bool inside_;
};

} // namespace cachealloc
