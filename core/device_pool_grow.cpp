// Growth from the memory source, and what happens when it has nothing left.
#include "core/device_pool.h"

#include <algorithm>

namespace cachealloc {

namespace {

/// Larger requests have segments of their own size.
constexpr std::uint64_t kSharedRequest = 10 * kMiB;

/// What a pool may grow beyond its live peak to spare a large segment that a small block would
/// pin. Without a bound a recorded program held 1.7 % more by it.
constexpr std::uint64_t kSparingPercent = 2;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) {
    return (bytes + to - 1) / to * to;
}

} // namespace

/// As PyTorch's, except that requests of a few MiB get segments of their own size until the pool
/// holds as much as a segment to be shared: a program that allocates one block of 2 MiB should not
/// see 20 MiB gone.
std::uint64_t DevicePool::segment_bytes(const Request& request) const {
    if (is_small(request.rounded)) return kGranule;
    const std::uint64_t exact = round_up(request.rounded, kGranule);
    if (grows_range()) return exact;
    const std::uint64_t shared = round_up(options_.large_segment_bytes(), kGranule);
    const bool shares = request.rounded < kSharedRequest && heap_.reserved() >= shared;
    return shares ? std::max(exact, shared) : exact;
}

/// Room to grow before order is looked for: what is held beyond the peak of live bytes.
bool DevicePool::within_slack(const Request& request) const {
    const auto peak = live_.peak_bytes();
    return reserved() + segment_bytes(request) <= peak + options_.slack_bytes(peak);
}

/// Whether to grow rather than to cut a block from a segment much larger than itself.
bool DevicePool::pays_to_grow(const Request& request) const {
    const std::uint64_t peak = peak_with(request);
    return within_slack(request) &&
           reserved() + segment_bytes(request) <= peak + peak / 100 * kSparingPercent;
}

/// One thread at a time grows a pool; those that waited look into the heap again before they do.
/// Nothing under this lock waits for the device.
DevicePool::Growth DevicePool::grow(const Request& request, Block** block) {
    const std::lock_guard token(growth_token_);
    const bool hold = (special_.load(std::memory_order_acquire) & kHold) != 0;
    *block = hold ? nullptr : take(request, grows_range() ? Heap::Reach::any : Heap::Reach::modest);
    if (*block != nullptr) return Growth::done;
    if (grows_range()) {
        const Growth growth = grow_range(request, hold, block);
        if (growth != Growth::impossible) return growth;
    }
    if (range_.mapped() != 0 && !serves_range()) release_finished_pieces(range_.mapped());
    return grow_segment(request, block);
}

DevicePool::Growth DevicePool::grow_segment(const Request& request, Block** block) {
    std::uint64_t bytes = segment_bytes(request);
    const std::uint64_t least = round_up(request.rounded, kGranule);
    if (!may_grow(bytes)) bytes = least;
    if (!may_grow(bytes)) return Growth::over_limit;
    SourceResult result = source_.allocate(bytes);
    if (result.status == SourceStatus::out_of_memory && bytes > least) {
        bytes = least;
        result = source_.allocate(bytes);
    }
    if (result.status == SourceStatus::out_of_memory) return Growth::no_room;
    if (result.status == SourceStatus::failed) return Growth::impossible;
    if (result.address % kGranule == 0) {
        const bool small = is_small(request.rounded);
        note_segment(true, result.address, bytes, small); // before others find its rest
        *block = heap_.add_segment(result.address, bytes, small, request.rounded);
        if (*block == nullptr) note_segment(false, result.address, bytes, small);
    }
    if (*block == nullptr) { // an address that others may share, or no host memory: not for us
        source_.release(result.address, bytes);
        return Growth::impossible;
    }
    count(slow_.segment_allocs);
    if (heap_.reserved() >= bytes + live_bytes() + request.rounded) {
        if (scattered_growths_.fetch_add(1, std::memory_order_relaxed) + 1 == kScatteredGrowths)
            kept_up_to_.store(kAlwaysCached, std::memory_order_relaxed);
    }
    return Growth::done;
}

/// Gives back the coldest settled segment of at least that size. Returns its bytes, 0 if none: then
/// none was on its way to the driver either.
std::uint64_t DevicePool::release_segment(std::uint64_t at_least) {
    const std::lock_guard releasing(release_mutex_);
    return release(heap_.take_coldest(at_least));
}

/// Gives back what a take_..() of the heap has returned, perhaps null, under release_mutex_.
std::uint64_t DevicePool::release(Segment* segment) {
    if (segment == nullptr) return 0;
    const std::uint64_t bytes = segment->size;
    note_segment(false, segment->base, bytes, segment->small);
    if (source_.release(segment->base, bytes).status != SourceStatus::done) {
        note_segment(true, segment->base, bytes, segment->small);
        heap_.restore(segment);
        return 0;
    }
    heap_.retire(segment);
    count(slow_.segment_frees);
    return bytes;
}

void DevicePool::note_segment(bool allocated, DeviceAddress base, std::uint64_t bytes, bool small) {
    if (observer_ == nullptr) return;
    if (allocated) {
        observer_->segment_allocated(base, bytes, small);
    } else {
        observer_->segment_freed(base, bytes, small);
    }
}

Block* DevicePool::note_settled_chain(Block* chain) {
    for (const Block* block = chain; block != nullptr; block = block->link)
        count_settled(*block);
    return chain;
}

/// The driver has no room. A stream takes what another one has not come to freeing yet. Gives back
/// cold segments until the request fits; then waits for what is in limbo; then gives back
/// everything that is free. In growable memory each attempt to grow also joins free pieces, so only
/// what that cannot is left to be given back.
Block* DevicePool::make_room(const Request& request, Growth& growth) {
    const std::uint64_t wanted = segment_bytes(request);
    Block* block = nullptr;
    const auto try_again = [&] {
        growth = grow(request, &block);
        return growth == Growth::done || growth == Growth::impossible;
    };
    bool retried = false; // counts once a request
    const auto retry = [&] {
        if (!retried) count(slow_.alloc_retries);
        retried = true;
        return try_again();
    };
    const auto release_enough = [&] {
        std::uint64_t released = release_segment(wanted);
        while (released < wanted) {
            const std::uint64_t more = release_segment(0);
            if (more == 0) break;
            released += more;
        }
        return released != 0;
    };
    flush_to_heap();
    block = take(request, Heap::Reach::any);
    if (block != nullptr) return block;
    if (grows_range() && try_again()) return block;
    if (request.stream != nullptr) block = take_behind_event(request);
    if (block != nullptr) return block;
    heap_.statistics(true); // memory is short: what cannot be given back is most telling now
    if (release_enough() && retry()) return block;
    if (limbo_.head(Limbo::kAny).found) count(slow_.sync_all);
    while (limbo_.head(Limbo::kAny).found) {
        if (!timed_host_wait(limbo_.head(Limbo::kAny).stamp).done()) break;
        block = drain_and_find(request);
        if (block != nullptr) return block;
    }
    settle_what_is_done();
    block = take(request, Heap::Reach::any);
    if (block == nullptr && request.stream != nullptr) block = await_streams(request);
    if (block != nullptr) return block;
    while (release_segment(0) != 0) {
        if (retry()) return block;
    }
    if (try_again()) return block;
    if (release_pieces(range_.mapped()) != 0 && retry()) return block;
    return take(request, Heap::Reach::foreign);
}

/// Moves everything that is free and settled by now into the heap.
void DevicePool::settle_what_is_done() {
    const auto is_settled = [this](const Block* block) { return settled(block); };
    captures_ended();
    while (fences_.poll()) {
    }
    {
        const std::lock_guard moving(moving_mutex_);
        put_chain(note_settled_chain(limbo_.drain(is_settled)));
        put_chain(note_settled_chain(polled_.drain(is_settled)));
    }
    settle_streams(kAllPending);
    flush_to_heap();
}

std::uint64_t DevicePool::release_all() {
    const Limbo::Head youngest = limbo_.youngest();
    if (youngest.found) {
        count(slow_.sync_all);
        timed_host_wait(youngest.stamp);
    }
    return trim();
}

std::uint64_t DevicePool::trim() {
    settle_what_is_done();
    std::uint64_t released = 0;
    while (const std::uint64_t bytes = release_segment(0))
        released += bytes;
    return released + release_pieces(range_.mapped());
}

} // namespace cachealloc
