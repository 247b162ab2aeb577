// Growable memory: when it grows, when free pieces are joined instead, and how it is given back.
//
// What is unmapped must be finished, not only settled: the driver does not wait. On the way of an
// allocation the pool skips what has not finished; giving back waits on the host first.
#include "core/device_pool.h"
#include "core/pool/piece_size.h"

#include <algorithm>
#include <array>

namespace cachealloc {

namespace {

/// What the pool may hold beyond the peak of live bytes, in percent, before it joins free pieces
/// rather than grow. In simulations of 69 programs 1 % made half as many more mappings for 0.1 %
/// less memory, 3 % missed the aim for fixed shapes.
constexpr std::uint64_t kGrowthSlackPercent = 2;

/// Addresses are free: eight times what the device has, at least this much, so that holes need not
/// be filled well.
constexpr std::uint64_t kAddressFactor = 8;
constexpr std::uint64_t kLeastAddresses = 1024 * kGiB;

} // namespace

ExpandableHeap::Request DevicePool::placed(const Request& request) const {
    const std::uint64_t after = live_bytes() + request.rounded;
    return {request.rounded,
            Affinity::key(request.rounded, after, previous_size_.load(std::memory_order_relaxed))};
}

bool DevicePool::begin_range() {
    const std::uint64_t total = (source_.total_bytes() + kGranule - 1) / kGranule * kGranule;
    for (std::uint64_t bytes = std::max(total * kAddressFactor, kLeastAddresses); bytes >= total;
         bytes = bytes / 2 / kGranule * kGranule) {
        const SourceResult result = source_.reserve(bytes);
        if (result.status != SourceStatus::done) continue;
        if (result.address % kGranule == 0 && range_.begin(result.address, bytes)) return true;
        source_.unreserve(result.address, bytes);
        return false;
    }
    return false;
}

/// Whether a request that no free block holds gets new memory rather than joined pieces.
bool DevicePool::prefers_growth(const Request& request) const {
    if (request.rounded <= ExpandableHeap::kNeverStitched) return true;
    const std::uint64_t peak = peak_with(request);
    return reserved() + range_.growth(request.rounded) <= peak + peak * kGrowthSlackPercent / 100;
}

/// `fresh`: only memory that nobody has used. Impossible: growable memory cannot be had.
DevicePool::Growth DevicePool::grow_range(const Request& request, bool fresh, Block** block) {
    if (!range_.begun() && !begin_range()) {
        grows_range_.store(false, std::memory_order_relaxed);
        return Growth::impossible;
    }
    const ExpandableHeap::Request asked = placed(request);
    if (fresh) return extend_for(asked, true, block);
    const auto is_final = [](Growth growth) {
        return growth == Growth::done || growth == Growth::impossible;
    };
    if (prefers_growth(request)) {
        const Growth growth = extend_for(asked, false, block);
        if (is_final(growth)) return growth;
        return stitch(asked, false, block) == Growth::done ? Growth::done : growth;
    }
    const Growth growth = stitch(asked, true, block);
    return is_final(growth) ? growth : extend_for(asked, false, block);
}

/// Between plan and growth others may take the free memory that was to be part of it.
DevicePool::Growth DevicePool::extend_for(const ExpandableHeap::Request& request, bool fresh,
                                          Block** block) {
    Growth growth = Growth::done;
    while (growth == Growth::done && *block == nullptr)
        growth = extend(range_.plan_growth(request.size, fresh), &request, fresh, block);
    if (*block != nullptr) count(slow_.growths);
    return growth;
}

/// Maps memory for `room`, in a few sizes of pieces. What was mapped before the driver had no more
/// stays for the next.
DevicePool::Growth DevicePool::extend(const PieceRun& room, const ExpandableHeap::Request* request,
                                      bool fresh, Block** block) {
    if (room.bytes == 0) return Growth::no_room;
    if (!may_grow(room.bytes)) return Growth::over_limit;
    std::array<ExpandableHeap::Mapped, PieceRule::kMostSizes> mapped{};
    std::uint32_t count_mapped = 0;
    std::uint64_t done = 0;
    SourceStatus status = SourceStatus::done;
    while (done < room.bytes) {
        const std::uint64_t piece = piece_size(room.bytes - done, room.bytes);
        const PieceRun run{room.address + done, (room.bytes - done) / piece * piece};
        status = source_.map(run.address, run.bytes, piece).status;
        if (status != SourceStatus::done) break;
        if (observer_ != nullptr) observer_->memory_mapped(run.address, run.bytes);
        count(slow_.maps);
        count(slow_.pieces_mapped, run.bytes / piece);
        mapped[count_mapped++] = {run, piece};
        done += run.bytes;
    }
    if (status == SourceStatus::failed) grows_range_.store(false, std::memory_order_relaxed);
    if (count_mapped != 0) {
        const bool all = status == SourceStatus::done;
        const ExpandableHeap::Grown grown =
            range_.add_memory(mapped.data(), count_mapped, all ? request : nullptr, fresh);
        *block = grown.block;
        if (!grown.done) {
            for (std::uint32_t i = 0; i < count_mapped; ++i)
                unmap(mapped[i].run);
            return Growth::impossible;
        }
    }
    if (status == SourceStatus::done) return Growth::done;
    return status == SourceStatus::failed ? Growth::impossible : Growth::no_room;
}

/// Gives pieces back to the source, which may refuse.
bool DevicePool::unmap(const PieceRun& run) {
    if (observer_ != nullptr) observer_->memory_unmapped(run.address, run.bytes);
    if (source_.unmap(run.address, run.bytes).status == SourceStatus::done) {
        count(slow_.unmaps);
        count(slow_.unmapped_bytes, run.bytes);
        return true;
    }
    if (observer_ != nullptr) observer_->memory_mapped(run.address, run.bytes);
    return false;
}

/// Maps free pieces a second time, at addresses of their own. With `may_extend`, what they lack is
/// mapped anew first, if that is less than growing would need. No room: growing is left.
DevicePool::Growth DevicePool::stitch(const ExpandableHeap::Request& request, bool may_extend,
                                      Block** block) {
    if (request.size <= ExpandableHeap::kNeverStitched) return Growth::no_room;
    if (!range_.stitch_slot_free() && !end_oldest_stitch()) return Growth::no_room;
    std::uint64_t missing = 0;
    Stitch* stitch = range_.plan_stitch(request.size, missing);
    if (stitch == nullptr && may_extend && missing != 0 && missing < range_.growth(request.size)) {
        Block* none = nullptr;
        const Growth growth = extend(range_.plan_growth(missing, true), nullptr, true, &none);
        if (growth != Growth::done) return growth;
        stitch = range_.plan_stitch(request.size, missing);
    }
    if (stitch == nullptr) return Growth::no_room;
    const SourceResult result = source_.alias(stitch->runs.data(), stitch->run_count);
    if (result.status != SourceStatus::done) {
        range_.abandon_stitch(stitch);
        return Growth::no_room;
    }
    const std::uint64_t bytes = stitch->size;
    const std::uint64_t runs = stitch->run_count;
    if (observer_ != nullptr) observer_->alias_mapped(result.address, bytes);
    *block = range_.commit_stitch(stitch, result.address, request);
    if (*block == nullptr) {
        if (observer_ != nullptr) observer_->alias_unmapped(result.address, bytes);
        source_.drop_alias(result.address, bytes);
        range_.abandon_stitch(stitch);
        return Growth::no_room;
    }
    count(slow_.stitches_made);
    count(slow_.remaps, runs);
    note_fragmentation();
    if (!range_.stitch_slot_free()) note_last_uses();
    return Growth::done;
}

/// A program that fragments a few times does so again: from then on every large block is placed.
void DevicePool::note_fragmentation() {
    count(slow_.fragmentation_misses);
    if (slow_.fragmentation_misses.load(std::memory_order_relaxed) != kMissesUntilPlacing) return;
    cached_up_to_.store(ExpandableHeap::kSmallest, std::memory_order_relaxed);
    kept_up_to_.store(ExpandableHeap::kSmallest, std::memory_order_relaxed);
}

/// Where frees record nothing (level `ordered`) nothing could tell when a stitch may end.
void DevicePool::note_last_uses() {
    if (fences_.level() == OrderLevel::ordered) fences_.fence(false);
}

/// A slot for a new stitch: ends the oldest one whose users have finished.
bool DevicePool::end_oldest_stitch() {
    while (fences_.outstanding() != 0 && fences_.poll()) {
    }
    Stitch* const stitch =
        range_.take_stitch([this](Stamp stamp) { return fences_.finished(stamp); });
    if (stitch != nullptr) return end_stitch(stitch);
    note_last_uses(); // for the next time
    return false;
}

bool DevicePool::end_stitch(Stitch* stitch) {
    const PieceRun run{stitch->base, stitch->size};
    if (observer_ != nullptr) observer_->alias_unmapped(run.address, run.bytes);
    if (source_.drop_alias(run.address, run.bytes).status != SourceStatus::done) {
        if (observer_ != nullptr) observer_->alias_mapped(run.address, run.bytes);
        range_.restore_stitch(stitch);
        return false;
    }
    range_.forget_stitch(stitch);
    count(slow_.stitches_ended);
    return true;
}

/// Gives about `wanted` bytes of free pieces back, once their users have finished, and the idle
/// stitches that map them. Waits on the host. Returns bytes.
std::uint64_t DevicePool::release_pieces(std::uint64_t wanted) {
    if (range_.mapped() == 0 || !await_all_work()) return 0;
    const std::lock_guard token(growth_token_);
    return release_finished_pieces(wanted);
}

/// The same without waiting, under the growth token.
std::uint64_t DevicePool::release_finished_pieces(std::uint64_t wanted) {
    const auto finished = [this](Stamp stamp) { return fences_.finished(stamp); };
    while (Stitch* const stitch = range_.take_stitch(finished)) {
        if (!end_stitch(stitch)) break;
    }
    std::uint64_t released = 0;
    while (released < wanted) {
        Block* const block = range_.take_pieces(finished);
        if (block == nullptr) break;
        const PieceRun run{block->address, block->size};
        if (!unmap(run)) {
            range_.restore_pieces(block);
            break;
        }
        range_.forget_pieces(block);
        released += run.bytes;
    }
    return released;
}

void DevicePool::serve_from_segments() {
    if (!options_.expandable_segments) return;
    grows_range_.store(false, std::memory_order_relaxed);
    special_.fetch_or(kSegments, std::memory_order_acq_rel);
    flush_to_heap();
    const std::lock_guard token(growth_token_);
    release_finished_pieces(range_.mapped());
}

} // namespace cachealloc
