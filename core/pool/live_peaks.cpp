#include "core/pool/live_peaks.h"

#include <algorithm>
#include <bit>

namespace cachealloc {

namespace {

constexpr std::array<std::int64_t LiveAmounts::*, 5> kAmounts = {
    &LiveAmounts::blocks, &LiveAmounts::bytes, &LiveAmounts::active, &LiveAmounts::active_bytes,
    &LiveAmounts::requested};

LiveAmounts amounts(const Counters& counters) {
    const auto of = [&counters](Counter counter) {
        return static_cast<std::int64_t>(counters[static_cast<std::size_t>(counter)]);
    };
    LiveAmounts now;
    now.blocks = of(Counter::allocations) - of(Counter::frees);
    now.bytes = of(Counter::allocated_bytes) - of(Counter::freed_bytes);
    now.active = now.blocks + of(Counter::pending);
    now.active_bytes = now.bytes + of(Counter::pending_bytes);
    now.requested = now.active_bytes - (of(Counter::allocated_waste) - of(Counter::freed_waste) +
                                        of(Counter::pending_waste));
    return now;
}

void raise_to(std::atomic<std::int64_t>& value, std::int64_t to) {
    std::int64_t seen = value.load(std::memory_order_relaxed);
    while (seen < to && !value.compare_exchange_weak(seen, to, std::memory_order_relaxed)) {
    }
}

} // namespace

std::array<LiveAmounts, kSizeClasses + 1> LivePeaks::update() {
    const std::array<Counters, kSizeClasses> totals = cache_.totals();
    std::array<LiveAmounts, kSizeClasses + 1> now{amounts(totals[kSmallClass]),
                                                  amounts(totals[kLargeClass])};
    for (const auto amount : kAmounts)
        now[kBothClasses].*amount = now[kSmallClass].*amount + now[kLargeClass].*amount;
    for (std::size_t which = 0; which < now.size(); ++which) {
        for (std::size_t i = 0; i < kAmounts.size(); ++i)
            raise_to(peaks_[which][i], now[which].*kAmounts[i]);
    }
    return now;
}

/// A power of two, so that what is above it shows in the bits. A thread that is alone may have
/// more: nobody else's blocks change the sums.
std::int64_t LivePeaks::quantum() const {
    const std::uint64_t share = peak_bytes() / (cache_.one_thread() ? 8 : 256);
    return std::max(static_cast<std::int64_t>(std::bit_floor(share)), kQuantum);
}

/// Headroom is given by the least distance to a peak. What was asked for rises with the bytes, and
/// by the waste of a block whose place one with less waste takes: a sixteenth of its distance is
/// kept for that at least.
void LivePeaks::renew(ThreadCache& mine) {
    const auto now = update();
    const std::int64_t most = quantum();
    const auto within = [](std::int64_t distance, std::int64_t limit) {
        return std::clamp<std::int64_t>(distance, 0, limit);
    };
    const auto give = [&](Headroom& headroom, const LiveAmounts& is, const LiveAmounts& high) {
        const std::int64_t asked = high.requested - is.requested;
        const std::int64_t active = high.active - is.active;
        const std::int64_t active_bytes =
            std::min(high.active_bytes - is.active_bytes, asked - asked / 16);
        const std::int64_t blocks = within(std::min(high.blocks - is.blocks, active), kMostBlocks);
        const std::int64_t bytes = within(std::min(high.bytes - is.bytes, active_bytes), most);
        headroom.live.store(blocks * kOneBlock + bytes, std::memory_order_relaxed);
        headroom.active.store(within(active - blocks, kMostBlocks) * kOneBlock +
                                  within(active_bytes - bytes, most),
                              std::memory_order_relaxed);
        headroom.asked.store(within(asked - active_bytes, most), std::memory_order_relaxed);
    };
    for (const SizeClass which : {kSmallClass, kLargeClass})
        give(mine.of[which].headroom, now[which], peaks(which));
    give(mine.both, now[kBothClasses], peaks(kBothClasses));
    mine.surplus.store(kOneBlock - 2 * most, std::memory_order_relaxed);
    note_overdrawn(mine);
}

/// What others have taken meanwhile, this thread must not believe to be free.
void LivePeaks::limit(ThreadCache& mine) {
    const std::int64_t most = quantum();
    const auto lower = [most](std::atomic<std::int64_t>& value) {
        const std::int64_t word = value.load(std::memory_order_relaxed);
        if ((word & kBelowZero) != 0) return;
        const std::int64_t blocks = std::min(word >> kBytesBits, kMostBlocks);
        const std::int64_t bytes = std::min(word & (kOneBlock - 1), most);
        value.store(blocks * kOneBlock + bytes, std::memory_order_relaxed);
    };
    for (Headroom* headroom : {&mine.of[0].headroom, &mine.of[1].headroom, &mine.both}) {
        lower(headroom->live);
        lower(headroom->active);
        const std::int64_t asked = headroom->asked.load(std::memory_order_relaxed);
        headroom->asked.store(std::min(asked, most), std::memory_order_relaxed);
    }
    mine.surplus.store(kOneBlock - 2 * most, std::memory_order_relaxed);
    note_overdrawn(mine);
}

LiveAmounts LivePeaks::peaks(SizeClass which) const {
    LiveAmounts high;
    for (std::size_t i = 0; i < kAmounts.size(); ++i)
        high.*kAmounts[i] = peaks_[which][i].load(std::memory_order_relaxed);
    return high;
}

std::uint64_t LivePeaks::peak_bytes() const {
    return static_cast<std::uint64_t>(peaks_[kBothClasses][1].load(std::memory_order_relaxed));
}

} // namespace cachealloc
