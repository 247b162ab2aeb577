// The way of a hit and of a free. What happens on a miss is in device_pool_miss.cpp, growth and
// release in device_pool_grow.cpp.
#include "core/device_pool.h"

#include <algorithm>
#include <chrono>

namespace cachealloc {

DevicePool::DevicePool(AddressMap& map, BlockArena& arena, MemorySource& source, StreamOrder& order,
                       OrderLevel level, const Options& options, PoolObserver* observer)
    : options_(options), observer_(observer), source_(source), cache_(arena, options.cache_bytes()),
      heap_(map, arena, *this, max_split_, options.max_non_split_rounding_bytes()),
      range_(map, arena, *this), grows_range_(options.expandable_segments), fences_(order, level) {}

PoolResult DevicePool::allocate(std::uint64_t bytes) {
    if (bytes > kLargestRequest) return {PoolStatus::pass_through, 0, 0};
    const std::uint64_t rounded = rounded_size(bytes, options_.roundup_power2_divisions);
    const Request request{bytes, rounded, bins_.bin(rounded), cache_.mine()};
    if (special_.load(std::memory_order_acquire) != 0) return allocate_special(request);
    if (request.bin != BinIndex::kNone && cached(rounded)) {
        if (Block* const block = cache_.take(request.bin, request.mine)) {
            return make_live(block, request);
        }
    }
    return allocate_slow(request);
}

/// For the slow ways, in other files; only a hit has it inline.
PoolResult DevicePool::hand_out(Block* block, const Request& request) {
    return make_live(block, request);
}

inline PoolResult DevicePool::make_live(Block* block, const Request& request) {
    const DeviceAddress address = block->address;
    block->bin = request.bin;
    ++block->generation;
    block->requested.store(request.bytes, std::memory_order_relaxed);
    block->asynchronous.store(request.stream != nullptr, std::memory_order_relaxed);
    if (request.stream != nullptr) note_async(block);
    const std::uint64_t size = block->size;
    live_.took(request.mine, {BinIndex::size_class(request.bin), size, size - request.bytes});
    if (size >= max_split_) [[unlikely]]
        oversize_.took();
    block->state.store(BlockState::live, std::memory_order_release);
    return {PoolStatus::done, address, 0, false, size};
}

/// Makes the caller the block's owner, unless it is not live (a double free) or, recycled since the
/// look-up, lives somewhere else by now.
bool DevicePool::take_live(Block* block, DeviceAddress address) {
    BlockState expected = BlockState::live;
    if (!block->state.compare_exchange_strong(expected, BlockState::freeing,
                                              std::memory_order_acq_rel)) {
        return false;
    }
    if (block->address == address) return true;
    block->state.store(BlockState::live, std::memory_order_release);
    return false;
}

void DevicePool::count_free(const Block* block, ThreadCache& mine, bool settled) {
    live_.gave(mine, amount(*block), settled);
    if (block->size >= max_split_) [[unlikely]]
        count(oversize_.freed);
    if (block->asynchronous.load(std::memory_order_relaxed)) forget_async(block);
    if (observer_ != nullptr) [[unlikely]]
        observer_->freed(*block, settled);
}

/// What was freed before is fit for reuse now.
void DevicePool::count_settled(const Block& block) {
    live_.settled(cache_.mine(), amount(block));
    if (observer_ != nullptr) [[unlikely]]
        observer_->settled(block);
}

/// Puts a settled block where the next request of its size finds it, or where it can merge once
/// the program has shown that its sizes vary. Peak held by peak live of a training program with
/// caches for all sizes throughout: 1.25, thus 1.11.
void DevicePool::keep(Block* block, ThreadCache& mine) {
    if (block->size > kept_up_to_.load(std::memory_order_relaxed)) [[unlikely]] {
        put(block);
    } else if (Block* const surplus = cache_.put(block, mine)) {
        put(surplus);
    }
}

/// Puts a settled block back where it was cut from.
void DevicePool::put(Block* block) {
    if (block->segment->kind == SegmentKind::plain) {
        heap_.put(block);
    } else {
        range_.put(block, fences_.stamp());
    }
}

void DevicePool::put_chain(Block* chain) {
    if (!range_.begun()) {
        heap_.put_chain(chain);
        return;
    }
    Block* of_segments = nullptr;
    Block* of_range = nullptr;
    while (chain != nullptr) {
        Block* const block = chain;
        chain = block->link;
        Block*& chosen = block->segment->kind == SegmentKind::plain ? of_segments : of_range;
        block->link = chosen;
        chosen = block;
    }
    heap_.put_chain(of_segments);
    range_.put_chain(of_range, fences_.stamp());
}

/// A free that could not be ordered did not happen, as natively.
PoolResult DevicePool::keep_live(Block* block, OrderResult result) {
    if (result.status == OrderStatus::lost) special_.fetch_or(kLost, std::memory_order_release);
    block->state.store(BlockState::live, std::memory_order_release);
    return {PoolStatus::failed, 0, result.native};
}

PoolResult DevicePool::free(Block* block, DeviceAddress address, FreeKind kind) {
    const Stamp stamp = fences_.stamp();
    if (!take_live(block, address)) return {PoolStatus::not_live, 0, 0};
    if (block->asynchronous.load(std::memory_order_relaxed)) kind = FreeKind::does_not_wait;
    if (kind == FreeKind::does_not_wait && !rule_on(Rule::finished_only))
        kind = FreeKind::waits_unnoticed;
    ThreadCache& mine = cache_.mine();
    const bool ordered = fences_.level() == OrderLevel::ordered;
    if ((!ordered || kind == FreeKind::waits_on_host) && rule_on(Rule::fence)) {
        return settle_freed(block, kind, stamp, mine);
    }
    count_free(block, mine, true);
    keep(block, mine);
    return {};
}

template <class Wait>
OrderResult DevicePool::timed(Wait wait, std::uint64_t* spent_ns) {
    count(slow_.host_waits);
    const auto start = std::chrono::steady_clock::now();
    const OrderResult result = wait();
    const auto spent = std::chrono::steady_clock::now() - start;
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    count(slow_.host_wait_ns, static_cast<std::uint64_t>(ns));
    if (spent_ns != nullptr) *spent_ns = static_cast<std::uint64_t>(ns);
    return result;
}

OrderResult DevicePool::timed_host_wait(Stamp stamp) {
    if (fences_.finished(stamp)) return {};
    return timed([&] { return fences_.host_wait(stamp); });
}

/// Waits on the host until all work submitted so far has finished, if that can be told.
bool DevicePool::await_all_work() {
    if (fences_.level() == OrderLevel::wait) {
        return timed([this] { return fences_.synchronize(); }).done();
    }
    const Stamp stamp = fences_.stamp();
    return fences_.fence(false).done() && timed_host_wait(stamp).done();
}

OrderResult DevicePool::wait_as_natively(Stamp stamp) {
    std::uint64_t spent_ns = 0;
    const OrderResult result = timed([&] { return fences_.host_wait(stamp); }, &spent_ns);
    count(slow_.native_waits);
    count(slow_.native_wait_ns, spent_ns);
    return result;
}

/// As natively no work submitted after the free starts before all work submitted before it has
/// ended, whatever streams the two are on. Not at level `finished`, where such a barrier could hold
/// up what ends that work.
bool DevicePool::order_later_work(Stamp stamp) {
    if (fences_.level() != OrderLevel::fenced || !rule_on(Rule::device_order)) return false;
    count(slow_.barriers);
    if (fences_.barrier(stamp).done()) return fences_.settled(stamp, true);
    return wait_as_natively(stamp).done(); // a capture has begun meanwhile, or the call failed
}

PoolResult DevicePool::settle_freed(Block* block, FreeKind kind, Stamp stamp, ThreadCache& mine) {
    const bool waits = kind != FreeKind::does_not_wait;
    block->stamp = stamp;
    block->barrier_counts = waits;
    OrderResult result;
    bool finished = false;
    if (fences_.level() != OrderLevel::wait) {
        result = fences_.fence(waits);
        if (result.done()) count(slow_.fences);
        if (result.done() && kind == FreeKind::waits_on_host) {
            result = wait_as_natively(stamp);
            finished = true;
        }
    } else if (waits) {
        result = timed([this] { return fences_.synchronize(); });
        finished = true;
    } else {
        result.status = OrderStatus::refused; // without events it could only wait
    }
    if (result.status == OrderStatus::refused) {
        set_aside_owned(block);
        return {};
    }
    if (!result.done()) return keep_live(block, result);
    const bool settled = finished || (kind == FreeKind::waits_on_device && order_later_work(stamp));
    count_free(block, mine, settled);
    if (settled) {
        keep(block, mine);
    } else {
        (waits ? limbo_ : polled_).push(block);
    }
    PoolResult freed;
    freed.waited = finished;
    return freed;
}

PoolResult DevicePool::set_aside(Block* block, DeviceAddress address) {
    if (!take_live(block, address)) return {PoolStatus::not_live, 0, 0};
    set_aside_owned(block);
    return {};
}

void DevicePool::set_aside_owned(Block* block) {
    count(slow_.set_aside);
    count_free(block, cache_.mine(), false);
    block->barrier_counts = false;
    block->state.store(BlockState::aside, std::memory_order_relaxed);
    const std::lock_guard lock(aside_mutex_);
    block->link = aside_;
    aside_ = block;
    any_aside_.store(true, std::memory_order_release);
}

void DevicePool::captures_ended() {
    if (!any_aside_.load(std::memory_order_acquire)) return;
    Block* chain = nullptr;
    {
        const std::lock_guard lock(aside_mutex_);
        chain = aside_;
        aside_ = nullptr;
        any_aside_.store(false, std::memory_order_release);
    }
    const Stamp stamp = fences_.stamp();
    const bool fenced = fences_.level() == OrderLevel::wait ? fences_.synchronize().done()
                                                            : fences_.fence(false).done();
    while (chain != nullptr) {
        Block* const block = chain;
        chain = block->link;
        block->stamp = stamp;
        if (fenced) {
            polled_.push(block);
            continue;
        }
        const std::lock_guard lock(aside_mutex_); // a capture is open, or no event is free
        block->link = aside_;
        aside_ = block;
        any_aside_.store(true, std::memory_order_release);
    }
}

bool DevicePool::leave_ordered() {
    const std::lock_guard lock(transition_);
    if (fences_.level() != OrderLevel::ordered) return false;
    fences_.lower(OrderLevel::fenced);
    unfenced_until_ = fences_.stamp();
    fences_.fence(false);
    return true;
}

/// From the change of level on a barrier settles nothing. What barriers settled before is cached,
/// or was handed out, while its earlier users may be at work; all of those users came before a free
/// that natively waits for them. So waiting for them hangs nothing that runs natively, unless the
/// call that brought us here is one that natively passes such a wait. Out of level `ordered`, where
/// nothing was fenced, all work so far counts as such a user.
void DevicePool::enter_finished(bool may_wait) {
    if (fences_.level() == OrderLevel::wait) return;
    Stamp needed = 0;
    {
        const std::lock_guard lock(transition_);
        const bool unfenced = fences_.level() == OrderLevel::ordered;
        fences_.lower(OrderLevel::finished);
        if (unfenced) {
            unfenced_until_ = fences_.stamp();
            fences_.fence(false);
        }
        needed = std::max(unfenced_until_, fences_.last_barrier());
    }
    if (fences_.finished(needed) || !rule_on(Rule::transition_sync)) return;
    if (!fences_.covered(needed)) fences_.fence(may_wait);
    if (may_wait && fences_.covered(needed) && timed_host_wait(needed).done()) return;
    const std::lock_guard lock(transition_);
    hold_.store(std::max(needed, hold_.load(std::memory_order_relaxed)), std::memory_order_release);
    special_.fetch_or(kHold, std::memory_order_acq_rel);
}

/// Ends the hold if what it waits for has finished.
bool DevicePool::hold_is_over() {
    const Stamp hold = hold_.load(std::memory_order_acquire);
    if (!fences_.covered(hold)) fences_.fence(false); // refused so far: a capture was open
    while (!fences_.finished(hold) && fences_.poll()) {
    }
    const std::lock_guard lock(transition_);
    if (!fences_.finished(hold_.load(std::memory_order_relaxed))) return false;
    special_.fetch_and(~static_cast<std::uint32_t>(kHold), std::memory_order_acq_rel);
    return true;
}

void DevicePool::check_for_fault() {
    fences_.fence(false);
    if (fences_.lost() != 0) special_.fetch_or(kLost, std::memory_order_release);
}

PoolResult DevicePool::await_earlier_users() {
    const OrderResult result = timed_host_wait(fences_.last_barrier());
    if (result.done()) return {};
    return {PoolStatus::failed, 0, result.native};
}

/// The block's memory ends, and it with it.
void DevicePool::note_end(const Block& block) {
    switch (block.state.load(std::memory_order_acquire)) {
    case BlockState::live:
        count_free(&block, cache_.mine(), true);
        break;
    case BlockState::limbo:
    case BlockState::aside:
    case BlockState::streamed:
        count_settled(block);
        break;
    default:
        break;
    }
}

void DevicePool::note_all_ends() {
    heap_.visit([this](const Segment& segment) {
        for (const Block* block = segment.first; block != nullptr; block = block->next)
            note_end(*block);
        note_segment(false, segment.base, segment.size, segment.small);
    });
    range_.visit_blocks([this](const Block& block) { note_end(block); });
    if (observer_ == nullptr) return;
    visit_growable([this](const PieceRun& run, bool alias) {
        if (alias) {
            observer_->alias_unmapped(run.address, run.bytes);
        } else {
            observer_->memory_unmapped(run.address, run.bytes);
        }
    });
}

// What waits is forgotten before the blocks' records are used again; a pool is never unmapped, but
// most of its memory is that of the queues, which go back to the kernel.
void DevicePool::bury() {
    note_all_ends();
    limbo_.clear();
    polled_.clear();
    streamed_.clear();
    heap_.forget_all();
    range_.forget_all();
}

} // namespace cachealloc
