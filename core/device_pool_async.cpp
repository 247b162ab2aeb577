// What is allocated and freed in the order of a stream.
//
// A block freed on a stream goes back to that stream at once: its work runs in order, so whatever
// is submitted to it from now on comes behind the block's former users. Others get it when the
// event of its free has finished or, asking in the order of a stream themselves, behind a wait of
// their stream for that event. Only settled memory is split and merged.
//
// Where memory for a stream comes from:
//
//   the stream's own blocks of the size -> the caches -> what is settled, tree -> what others freed
//   and is done -> beyond the slack: what waits for a fence, behind a wait of this stream -> growth
//   -> the driver has no room: what others freed, behind a wait of this stream -> waits of the host
//
// So another stream's unfinished frees are waited for only when there is no other memory, as
// natively (CUDA programming guide, cudaMemPoolReuseAllowInternalDependencies): work behind the
// allocation may be what such a free is behind. A fence of a call that natively waits for all work
// before it is different: nothing that comes later can be needed for that.
#include "core/device_pool.h"

#include <chrono>

namespace cachealloc {

static_assert(StreamEvents::kEvents <= StreamLimbo::kMostBlocks);

namespace {

void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t to) {
    std::uint64_t seen = value.load(std::memory_order_relaxed);
    while (seen < to && !value.compare_exchange_weak(seen, to, std::memory_order_relaxed)) {
    }
}

} // namespace

PoolResult DevicePool::allocate_async(std::uint64_t bytes, const NamedStream& stream) {
    if (bytes > kLargestRequest || fences_.level() > OrderLevel::fenced ||
        (special_.load(std::memory_order_acquire) & ~static_cast<std::uint32_t>(kSegments)) != 0) {
        return {PoolStatus::pass_through, 0, 0};
    }
    const std::uint64_t rounded = rounded_size(bytes, options_.roundup_power2_divisions);
    const Request request{bytes, rounded, bins_.bin(rounded), cache_.mine(), &stream};
    if (request.bin != BinIndex::kNone) {
        Block* block = take_own(request);
        if (block == nullptr && cached(rounded)) block = cache_.take(request.bin, request.mine);
        if (block != nullptr) return serve(block, request);
    }
    return allocate_slow(request);
}

/// Without an event of its own the free is covered by a fence over all streams, which is only
/// polled; beside an open capture it is set aside.
PoolResult DevicePool::free_async(Block* block, DeviceAddress address, const NamedStream& stream) {
    if (fences_.level() == OrderLevel::ordered || !rule_on(Rule::fence) ||
        !rule_on(Rule::finished_only)) {
        return free(block, address, FreeKind::does_not_wait);
    }
    const Stamp stamp = fences_.stamp();
    if (!take_live(block, address)) return {PoolStatus::not_live, 0, 0};
    const std::uint32_t event = stream_events_.take();
    if (event != StreamEvents::kNone) {
        const OrderResult result = stream_events_.record(stream.handle, event);
        if (result.done()) {
            count(slow_.async_frees);
            count_free(block, cache_.mine(), false);
            block->event = event;
            streamed_.push(block, stream.id);
            return {};
        }
        stream_events_.give_back(event);
        if (result.status != OrderStatus::refused) return keep_live(block, result);
    }
    return settle_freed(block, FreeKind::does_not_wait, stamp, cache_.mine());
}

void DevicePool::note_async(const Block* block) {
    slow_.async_allocations.fetch_add(1, std::memory_order_seq_cst);
    const std::uint64_t used =
        async_used_.fetch_add(block->size, std::memory_order_relaxed) + block->size;
    raise_to(async_used_peak_, used);
}

void DevicePool::forget_async(const Block* block) {
    async_used_.fetch_sub(block->size, std::memory_order_relaxed);
}

/// The stream's newest own block of the size: its memory is likeliest to be in the caches of the
/// device, and older ones may finish meanwhile and serve everybody.
Block* DevicePool::take_own(const Request& request) {
    Block* const block = streamed_.take_newest(request.bin, request.stream->id);
    if (block == nullptr) return nullptr;
    stream_events_.give_back(block->event);
    count(slow_.stream_hits);
    return note_settled(block);
}

bool DevicePool::finished(const StreamLimbo::Seen& seen) {
    return stream_events_.ask(seen.event) == OrderStatus::done;
}

/// The answer about an event belongs to the block that was seen: while it is in limbo nobody
/// records its event again, and if it is not there any more the answer is not used.
Block* DevicePool::take_finished(std::uint32_t bin) {
    if (bin == BinIndex::kNone || streamed_.count() == 0) return nullptr;
    std::uint32_t pending = 0;
    for (StreamLimbo::Seen seen = streamed_.oldest(bin); seen.block != nullptr;
         seen = streamed_.oldest(bin, seen.turn)) {
        if (!finished(seen)) {
            if (++pending == kFewPending) break;
            continue;
        }
        Block* const block = streamed_.take(seen);
        if (block == nullptr) continue;
        stream_events_.give_back(block->event);
        count(slow_.stream_hits);
        return note_settled(block);
    }
    return nullptr;
}

/// Moves blocks whose events have finished to the heap. Ends after as many questions in vain; the
/// others are paid for by the frees that left the blocks. True if any moved.
bool DevicePool::settle_streams(std::uint32_t most_pending) {
    if (streamed_.count() == 0) return false;
    Block* settled = nullptr;
    std::uint32_t pending = 0;
    StreamLimbo::Seen seen = streamed_.oldest(StreamLimbo::kAny);
    while (seen.block != nullptr && pending < most_pending) {
        if (!finished(seen)) {
            ++pending;
        } else if (Block* const block = streamed_.take(seen)) {
            stream_events_.give_back(note_settled(block)->event);
            block->link = settled;
            settled = block;
        }
        seen = streamed_.oldest(StreamLimbo::kAny, seen.turn);
    }
    put_chain(settled);
    return settled != nullptr;
}

Block* DevicePool::settle_streams_and_find(const Request& request, std::uint32_t most_pending) {
    if (Block* const block = take_finished(request.bin)) return block;
    return settle_streams(most_pending) ? take(request, Heap::Reach::modest) : nullptr;
}

Block* DevicePool::pop_settled(std::uint32_t bin) {
    if (bin == BinIndex::kNone) return nullptr;
    const auto is_settled = [this](const Block* block) { return settled(block); };
    Block* block = limbo_.pop(bin, is_settled);
    if (block == nullptr) block = polled_.pop(bin, is_settled);
    if (block != nullptr) count(slow_.limbo_hits);
    return note_settled(block);
}

Block* DevicePool::find_for_stream(const Request& request) {
    Block* block = pop_settled(request.bin);
    if (block == nullptr) block = take(request, Heap::Reach::modest);
    if (block == nullptr && request.stream->reuse_finished) {
        block = settle_streams_and_find(request, kFewPending);
    }
    if (block == nullptr && fences_.outstanding() != 0 && fences_.poll()) {
        block = drain_and_find(request);
    }
    if (block == nullptr && !within_slack(request)) block = take_behind_fence(request);
    return block != nullptr ? block : flush_and_find(request);
}

/// Takes what a classic call freed behind a wait of the asking stream for its fence. At level
/// `finished`, where stream memory operations may be what ends the work before it, nobody comes
/// here.
Block* DevicePool::take_behind_fence(const Request& request) {
    const NamedStream& stream = *request.stream;
    if (request.bin == BinIndex::kNone || !stream.reuse_waiting ||
        fences_.level() != OrderLevel::fenced) {
        return nullptr;
    }
    Block* const block = limbo_.pop(request.bin, [](const Block*) { return true; });
    if (block == nullptr) return nullptr;
    if (fences_.stream_wait(block->stamp, stream.handle).done()) {
        count(slow_.limbo_hits);
        count(slow_.stream_waits);
        return note_settled(block);
    }
    limbo_.push(block);
    return nullptr;
}

/// Takes what another stream's order freed behind a wait of the asking stream.
Block* DevicePool::take_behind_event(const Request& request) {
    const NamedStream& stream = *request.stream;
    if (request.bin == BinIndex::kNone || !stream.reuse_waiting) return nullptr;
    const StreamLimbo::Seen seen = streamed_.oldest(request.bin);
    Block* const block = streamed_.take(seen);
    if (block == nullptr) return nullptr;
    if (stream_events_.wait(stream.handle, block->event).done()) {
        stream_events_.give_back(block->event);
        count(slow_.stream_hits);
        count(slow_.stream_waits);
        return note_settled(block);
    }
    streamed_.push(block, seen.stream);
    return nullptr;
}

/// There is no other memory. Natively a stream-ordered allocation waits for frees that are on their
/// way before it fails, where cudaMalloc does not.
Block* DevicePool::await_streams(const Request& request) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    Block* block = nullptr;
    while (block == nullptr && streamed_.count() != 0 && fences_.lost() == 0) {
        if (settle_streams(kAllPending)) {
            flush_to_heap();
            block = take(request, Heap::Reach::any);
        } else {
            fences_.order().pause();
        }
    }
    const std::chrono::nanoseconds spent = Clock::now() - start;
    count(slow_.host_waits);
    count(slow_.host_wait_ns, static_cast<std::uint64_t>(spent.count()));
    return block;
}

std::uint64_t DevicePool::wholly_free_bytes() {
    settle_streams(kAllPending);
    return heap_.wholly_free() + range_.wholly_free();
}

/// What is held, less what classic calls have.
std::uint64_t DevicePool::async_reserved() const {
    const std::uint64_t live =
        cache_.total(Counter::allocated_bytes) - cache_.total(Counter::freed_bytes);
    const std::uint64_t used = async_used_.load(std::memory_order_relaxed);
    const std::uint64_t classic = live > used ? live - used : 0;
    const std::uint64_t held = reserved();
    return held > classic ? held - classic : 0;
}

AsyncMemory DevicePool::async_memory() {
    AsyncMemory now;
    now.used = async_used_.load(std::memory_order_relaxed);
    now.used_peak = async_used_peak_.load(std::memory_order_relaxed);
    now.reserved = async_reserved();
    raise_to(async_reserved_peak_, now.reserved);
    now.reserved_peak = async_reserved_peak_.load(std::memory_order_relaxed);
    return now;
}

void DevicePool::reset_used_peak() {
    async_used_peak_.store(async_used_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void DevicePool::reset_reserved_peak() {
    async_reserved_peak_.store(async_reserved(), std::memory_order_relaxed);
}

std::uint64_t DevicePool::trim_to(std::uint64_t keep) {
    settle_what_is_done();
    std::uint64_t released = 0;
    while (async_reserved() > keep) {
        std::uint64_t bytes = release_segment(0);
        if (bytes == 0) bytes = release_pieces(async_reserved() - keep);
        if (bytes == 0) break;
        released += bytes;
    }
    return released;
}

} // namespace cachealloc
