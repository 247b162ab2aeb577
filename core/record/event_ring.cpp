#include "core/record/event_ring.h"

#include "core/record/live_table.h"
#include "core/record/populate_pages.h"

#include <algorithm>
#include <atomic>

namespace cachealloc {

using trace::Chunk;
using trace::ChunkHeader;
using trace::ChunkState;

namespace {

/// Records of the chunk that were committed. They were written in order, so a full chunk is told by
/// its last one.
std::uint32_t committed(const Chunk& chunk, std::uint64_t claim) {
    const auto there = [&](std::uint32_t index) {
        return chunk.records[index].sequence.load(std::memory_order_relaxed) ==
               trace::event_sequence(claim, index);
    };
    if (there(trace::kChunkRecords - 1)) return trace::kChunkRecords;
    std::uint32_t count = 0;
    while (count < trace::kChunkRecords && there(count))
        ++count;
    return count;
}

} // namespace

EventRing::EventRing(TraceFile& file, SectionSpace& space, const ThreadLog& threads)
    : file_(file), space_(space), threads_(threads), chunks_(reinterpret_cast<Chunk*>(space.data)) {
}

bool EventRing::claim(RingPlace& place, std::uint32_t thread, bool& fresh) {
    close(place);
    trace::Counters& counters = file_.header().counters;
    for (int tries = 0; tries < kTries; ++tries) {
        const std::uint64_t number = counters.next_claim.fetch_add(1, std::memory_order_relaxed);
        if (number >= chunks()) grow();
        Chunk& chunk = chunks_[number % chunks()];
        ChunkHeader& header = chunk.header;
        if (!take(header, thread, number)) continue;
        const std::uint64_t before = header.claim.load(std::memory_order_relaxed);
        if (before > number) { // we were asleep for a lap: what is here is younger than we
            header.owner.store(0, std::memory_order_release);
            continue;
        }
        if (before != 0)
            counters.overwritten.fetch_add(committed(chunk, before), std::memory_order_relaxed);
        // From here on no record of the chunk is in its place for a reader.
        header.claim.store(number + 1, std::memory_order_relaxed);
        header.thread = thread;
        header.state.store(ChunkState::writing, std::memory_order_release);
        place = {&chunk, number + 1, 0};
        fresh = true;
        return true;
    }
    return false;
}

/// Makes the thread the chunk's owner. The claim's number is part of the word, so that no two
/// owners are ever alike.
bool EventRing::take(ChunkHeader& header, std::uint32_t thread, std::uint64_t number) const {
    std::uint64_t owner = header.owner.load(std::memory_order_acquire);
    if (owner != 0 && threads_.runs(static_cast<std::uint32_t>(owner >> 32))) return false;
    const std::uint64_t mine = std::uint64_t{thread} << 32 | 0x80000000U | (number & 0x7fffffffU);
    return header.owner.compare_exchange_strong(owner, mine, std::memory_order_acq_rel,
                                                std::memory_order_relaxed);
}

void EventRing::commit(RingPlace& place, const trace::EventRecord& record) {
    trace::EventRecord& slot = place.chunk->records[place.next];
    copy_content(slot, record);
    slot.sequence.store(record.sequence.load(std::memory_order_relaxed), std::memory_order_release);
    ++place.next;
}

void EventRing::close(RingPlace& place) {
    if (place.chunk == nullptr) return;
    ChunkHeader& header = place.chunk->header;
    header.state.store(ChunkState::complete, std::memory_order_relaxed);
    header.owner.store(0, std::memory_order_release);
    place = {};
}

bool EventRing::grow() {
    if (space_.ready() == space_.capacity()) return false;
    const bool grown = file_.grow(space_, space_.ready() + trace::kChunkBytes);
    std::uint64_t used = space_.section->used.load(std::memory_order_relaxed);
    while (used < space_.ready() && !space_.section->used.compare_exchange_weak(
                                        used, space_.ready(), std::memory_order_relaxed)) {
    }
    if (space_.capped()) file_.header().seen.fetch_or(trace::kRingCapped);
    return grown;
}

void EventRing::grow_ahead() {
    const std::uint64_t claimed =
        file_.header().counters.next_claim.load(std::memory_order_relaxed) * trace::kChunkBytes;
    if (claimed + space_.step / 2 > space_.ready()) grow();
    populate(claimed);
}

/// The pages of the next claims.
void EventRing::populate(std::uint64_t claimed) {
    std::uint64_t from = populated_.load(std::memory_order_relaxed);
    if (claimed + kPopulateBytes / 2 <= from) return;
    const std::uint64_t to = std::min(claimed + kPopulateBytes, space_.ready());
    from = std::max(from, std::min(claimed, to));
    if (to <= from || !populated_.compare_exchange_strong(from, to, std::memory_order_relaxed))
        return;
    populate_pages(space_.data + from, to - from);
}

} // namespace cachealloc
