// What a pool may hold: the process's share of the device, and what is given back before growth.
#include "core/device_pool.h"

#include <algorithm>

namespace cachealloc {

namespace {

/// Growth beyond the live peak by more than this gives back first what is wholly free. Peak held by
/// peak live on six recorded programs and 63 made-up ones, calls to the driver a step in the mean:
/// 10 % 1.137, 3.4; 15 % 1.157, 1.2; 20 % 1.168, 1.1; never 1.322, 0.4.
constexpr std::uint64_t kBeyondPeakPercent = 15;
/// And by more than this, else it is not worth a call.
constexpr std::uint64_t kLeastBeyond = 8 * kMiB;

/// Each segment given back costs 29 to 100 us and drains the device's queues, so one is worth an
/// eighth of the live peak in allocations, and no program is so small that 8 MiB are worth one.
/// As many as kBurst may go at once. 1 % of the mean peak is lost by it.
constexpr std::uint64_t kReleasesPerPeak = 8;
constexpr std::uint64_t kLeastWorth = 8 * kMiB;
constexpr std::int64_t kBurst = 64;
/// What has to be allocated after an attempt that found the device busy, in releases.
constexpr std::int64_t kPause = 16;

/// How often the device is asked whether it is idle, about a microsecond apart: some time for the
/// kernels since the last free, and an end where they wait for the host themselves.
constexpr int kPatience = 500;

} // namespace

std::uint64_t DevicePool::live_bytes() const {
    const std::uint64_t freed = cache_.total(Counter::freed_bytes); // first: no more than allocated
    const std::uint64_t allocated = cache_.total(Counter::allocated_bytes);
    return allocated > freed ? allocated - freed : 0;
}

std::uint64_t DevicePool::peak_with(const Request& request) const {
    return std::max(live_.peak_bytes(), live_bytes() + request.rounded);
}

std::uint64_t DevicePool::limit() const {
    const Fraction share = options_.per_process_memory_fraction;
    return share == Fraction{Fraction::kOne} ? kNoLimit : share.of(source_.total_bytes());
}

/// The source is asked only where its answer could matter: it costs more than a driver call.
std::uint64_t DevicePool::held(std::uint64_t limit) {
    const std::uint64_t mine = reserved();
    const std::uint64_t known = elsewhere_.load(std::memory_order_relaxed);
    if (known != kUnknown && mine + known < limit / 4 * 3) return mine + known;
    const std::uint64_t process = source_.process_bytes();
    const std::uint64_t elsewhere = process > mine ? process - mine : 0;
    elsewhere_.store(elsewhere, std::memory_order_relaxed);
    return mine + elsewhere;
}

bool DevicePool::may_grow(std::uint64_t bytes) {
    const std::uint64_t most = limit();
    return most == kNoLimit || (bytes <= most && held(most) <= most - bytes);
}

PoolResult DevicePool::refuse(Growth growth) {
    count(slow_.oom);
    return {growth == Growth::over_limit ? PoolStatus::over_limit : PoolStatus::out_of_memory, 0,
            0};
}

/// Gives back the large segments that have been free for longest, as many as the user's threshold
/// asks for.
void DevicePool::collect_garbage(const Request& request) {
    const std::uint64_t most = limit();
    if (most == kNoLimit || options_.garbage_collection_threshold == Fraction{}) return;
    const std::uint64_t threshold = options_.garbage_collection_threshold.of(most);
    const std::uint64_t grown = held(most) + segment_bytes(request);
    const std::lock_guard releasing(release_mutex_);
    for (std::uint64_t freed = 0; grown > threshold + freed;) {
        const std::uint64_t bytes = release(heap_.take_coldest_large());
        if (bytes == 0) return;
        freed += bytes;
    }
}

/// Giving memory back waits for all work of the context, which natively an allocation does not: a
/// kernel may be waiting for what the program does next. So it is done only when all work has
/// finished; what precedes a free that natively waits may be waited for, the rest only for a
/// moment.
bool DevicePool::idle() {
    if (fences_.level() == OrderLevel::wait) return false;
    const Limbo::Head youngest = limbo_.youngest();
    if (youngest.found && !timed_host_wait(youngest.stamp).done()) return false;
    const Stamp now = fences_.stamp();
    if (!fences_.fence(false).done()) return false;
    count(slow_.fences);
    for (int asked = 0; asked < kPatience && fences_.lost() == 0; ++asked) {
        while (fences_.poll()) {
        }
        if (fences_.finished(now)) return true;
        fences_.order().pause();
    }
    return false;
}

/// Growth would leave the pool much larger than its live peak: gives wholly free segments back
/// first, the smallest one that makes up for it or else the largest, again and again.
void DevicePool::shrink_before_growth(const Request& request) {
    if (heap_.releasable() == 0) return;
    const std::uint64_t bytes = segment_bytes(request);
    const std::uint64_t peak = peak_with(request);
    const std::uint64_t most = peak + std::max(kLeastBeyond, peak / 100 * kBeyondPeakPercent);
    if (reserved() + bytes <= most) return;
    const std::unique_lock shrinking(shrink_mutex_, std::try_to_lock);
    if (!shrinking) return; // somebody else is at it
    const auto worth = static_cast<std::int64_t>(std::max(peak / kReleasesPerPeak, kLeastWorth));
    const std::uint64_t allocated = cache_.total(Counter::allocated_bytes);
    release_credit_ += static_cast<std::int64_t>(allocated - credited_until_);
    release_credit_ = std::min(release_credit_, kBurst * worth);
    credited_until_ = allocated;
    if (release_credit_ < worth) return;
    if (!idle()) {
        release_credit_ = -kPause * worth;
        return;
    }
    const std::lock_guard releasing(release_mutex_);
    while (release_credit_ >= worth && reserved() + bytes > most) {
        if (release(heap_.take_covering(reserved() + bytes - most)) == 0) return;
        release_credit_ -= worth;
    }
}

} // namespace cachealloc
