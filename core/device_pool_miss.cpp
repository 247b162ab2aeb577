// What DevicePool::allocate() does when the caches have nothing of the size: the ladder.
//
//   limbo's settled head of the size -> tree -> order what waits in limbo, or grow -> make room
//
// Whether to order or to grow decides throughput (4-stream pipeline on an H200, items per second):
// a barrier on every reuse 3,700, a host wait for the oldest of several blocks 10,700, native
// 2,800.
#include "core/choice.h"
#include "core/device_pool.h"

namespace cachealloc {

namespace {

/// With one stream in use a barrier holds up nothing, but costs 0.33 us; so small blocks of one
/// size gather in limbo up to this many bytes, while the tree can serve, and share one barrier.
constexpr std::uint64_t kGatherBytes = kMiB;

} // namespace

/// Only the program's own hint decides: wrong, it costs time, never safety.
bool DevicePool::barrier_is_free() const {
    return fences_.level() == OrderLevel::fenced && younger_fences() != 0 &&
           !fences_.order().several_streams();
}

PoolResult DevicePool::allocate_special(const Request& request) {
    if ((special_.load(std::memory_order_acquire) & kLost) != 0) {
        return {PoolStatus::pass_through, 0, 0};
    }
    Block* block = nullptr;
    if ((special_.load(std::memory_order_acquire) & kHold) == 0 || hold_is_over()) {
        if (request.bin != BinIndex::kNone && cached(request.rounded)) {
            block = cache_.take(request.bin, request.mine);
        }
        return block != nullptr ? serve(block, request) : allocate_slow(request);
    }
    const Growth growth = grow(request, &block);
    if (growth == Growth::done) return hand_out(block, request);
    if (growth == Growth::over_limit) return refuse(growth);
    return {PoolStatus::pass_through, 0, 0};
}

/// What is left of growable memory goes back to it once that is not handed out any more.
PoolResult DevicePool::serve(Block* block, const Request& request) {
    if (block->segment->kind == SegmentKind::plain || serves_range()) {
        if (!ExpandableHeap::is_small(request.rounded))
            previous_size_.store(request.rounded, std::memory_order_relaxed);
        return hand_out(block, request);
    }
    put(block);
    return allocate_slow(request);
}

PoolResult DevicePool::allocate_slow(const Request& request) {
    if (request.rounded > source_.total_bytes()) return {PoolStatus::pass_through, 0, 0};
    if (fences_.lost() != 0) return lost_context();
    if (fences_.level() != OrderLevel::wait) captures_ended(); // there it would wait for the device
    Block* block = nullptr;
    if (request.stream != nullptr) {
        block = find_for_stream(request);
    } else {
        block = find_settled(request);
        if (block == nullptr) block = settle_streams_and_find(request, kFewPending);
        if (block == nullptr) block = settle_and_find(request);
    }
    if (block == nullptr && !pays_to_grow(request)) block = take(request, Heap::Reach::any);
    if (block != nullptr) return serve(block, request);
    if (fences_.lost() != 0) return lost_context();
    collect_garbage(request);
    shrink_before_growth(request);
    Growth growth = grow(request, &block);
    if (growth == Growth::done) return serve(block, request);
    if (growth == Growth::over_limit && options_.throw_on_cudamalloc_oom) {
        count(slow_.oom_rejections);
        return refuse(growth);
    }
    if (growth != Growth::impossible) block = make_room(request, growth);
    if (block != nullptr) return serve(block, request);
    if (fences_.lost() != 0) return lost_context();
    if (growth == Growth::impossible) return {PoolStatus::pass_through, 0, 0};
    return refuse(growth);
}

/// From now on the driver answers everything, with its sticky error.
PoolResult DevicePool::lost_context() {
    special_.fetch_or(kLost, std::memory_order_release);
    return {PoolStatus::pass_through, 0, 0};
}

/// What needs no order any more: the head of this size's queue, then the tree. Where a barrier is
/// free and blocks of the very size wait in limbo, they are taken rather than something new cut,
/// as a caching allocator that knows its one stream would.
Block* DevicePool::find_settled(const Request& request) {
    if (!cached(request.rounded)) {
        Block* const block = drain_and_find(request);
        return block != nullptr ? block : take(request, Heap::Reach::modest);
    }
    if (request.bin != BinIndex::kNone) {
        const auto is_settled = [this](const Block* block) { return settled(block); };
        Block* block = limbo_.pop(request.bin, is_settled);
        if (block == nullptr) block = polled_.pop(request.bin, is_settled);
        if (block == nullptr && barrier_is_free() && limbo_.bytes(request.bin) >= kGatherBytes &&
            settle_oldest(request.bin)) {
            block = limbo_.pop(request.bin, is_settled);
        }
        if (block != nullptr) {
            count(slow_.limbo_hits);
            return note_settled(block);
        }
    }
    return take(request, Heap::Reach::modest);
}

Block* DevicePool::take(const Request& request, Heap::Reach reach) {
    Block* block = serves_range() ? range_.take(placed(request), reach) : nullptr;
    if (block == nullptr) block = heap_.take(request.rounded, reach);
    if (block != nullptr) count(slow_.tree_hits);
    return block;
}

/// Moves everything settled out of limbo: blocks of this size to the caller and to the caches, the
/// rest to the heap, where it can merge.
Block* DevicePool::drain_and_find(const Request& request) {
    const auto is_settled = [this](const Block* block) { return settled(block); };
    Block* found = nullptr;
    Block* others = nullptr;
    std::unique_lock moving(moving_mutex_);
    for (Limbo* queue : {&limbo_, &polled_}) {
        for (Block* chain = note_settled_chain(queue->drain(is_settled)); chain != nullptr;) {
            Block* block = chain;
            chain = block->link;
            block->link = nullptr;
            if (block->bin == request.bin && block->bin != BinIndex::kNone &&
                cached(request.rounded)) {
                if (found == nullptr) {
                    found = block;
                    continue;
                }
                block = cache_.put(block, request.mine);
                if (block == nullptr) continue;
            }
            block->link = others;
            others = block;
        }
    }
    put_chain(others);
    moving.unlock();
    if (found != nullptr) {
        count(slow_.limbo_hits);
        return found;
    }
    if (others == nullptr) return nullptr;
    return take(request, Heap::Reach::modest);
}

void DevicePool::flush_to_heap() {
    const std::lock_guard moving(moving_mutex_);
    Block* chain = nullptr;
    cache_.drain([&chain](Block* block) {
        block->link = chain;
        chain = block;
    });
    put_chain(chain);
}

Block* DevicePool::flush_and_find(const Request& request) {
    flush_to_heap();
    return take(request, Heap::Reach::modest);
}

/// Orders what waits in limbo, unless growth is the better choice (returns null then).
Block* DevicePool::settle_and_find(const Request& request) {
    if (barrier_is_free()) {
        if (limbo_.count() != 0 && settle_oldest(Limbo::kAny)) {
            if (Block* const block = drain_and_find(request)) return block;
        }
        if (polled_.count() != 0 && fences_.poll()) {
            if (Block* const block = drain_and_find(request)) return block;
        }
        return flush_and_find(request);
    }
    if (fences_.outstanding() != 0 && fences_.poll()) {
        if (Block* const block = drain_and_find(request)) return block;
    }
    if (within_slack(request)) return flush_and_find(request);
    if (request.bin != BinIndex::kNone && settle_oldest(request.bin)) {
        if (Block* const block = drain_and_find(request)) return block;
    }
    if (Block* const block = flush_and_find(request)) return block;
    while (limbo_.head(Limbo::kAny).found && settle_oldest(Limbo::kAny)) {
        if (Block* const block = drain_and_find(request)) return block;
    }
    return nullptr;
}

/// Makes the head of a queue settled. False if that is not possible now.
///
/// Several streams: with three or more younger fences outstanding the host waits for the head, else
/// a barrier. One stream: a barrier behind the youngest fence, which settles all of limbo at once.
bool DevicePool::settle_oldest(std::uint32_t bin) {
    const Limbo::Head head = limbo_.head(bin);
    if (!head.found) return false;
    if (fences_.settled(head.stamp, true)) return true;
    if (fences_.level() == OrderLevel::fenced || !rule_on(Rule::finished_level)) {
        if (barrier_is_free()) {
            count(slow_.barriers);
            return fences_.barrier_behind_all().done() && fences_.settled(head.stamp, true);
        }
        if (fences_.younger_than(head.stamp) < younger_fences()) {
            count(slow_.barriers);
            return fences_.barrier(head.stamp).done();
        }
    }
    return timed_host_wait(head.stamp).done();
}

} // namespace cachealloc
