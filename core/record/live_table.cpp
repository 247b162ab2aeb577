#include "core/record/live_table.h"

#include "core/record/populate_pages.h"

#include <algorithm>

namespace cachealloc {

using trace::AddressSpace;
using trace::EventRecord;

namespace {

constexpr std::uint64_t hash_of(AddressSpace space, std::uint64_t address) {
    std::uint64_t hash = (address ^ static_cast<std::uint64_t>(space) << 60) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
    return hash * 0xd6e8feb86659fd93;
}

bool is_free(const EventRecord& slot) {
    return slot.sequence.load(std::memory_order_relaxed) == 0;
}

void publish(EventRecord& slot, const EventRecord& record) {
    copy_content(slot, record);
    slot.sequence.store(record.sequence.load(std::memory_order_relaxed), std::memory_order_release);
}

/// Before any of its content changes. The compiler's order is enough: a process is killed between
/// two instructions, and what ran before is all in memory.
void clear(EventRecord& slot) {
    slot.sequence.store(0, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

} // namespace

void copy_content(EventRecord& to, const EventRecord& from) {
    to.time = from.time;
    to.address = from.address;
    to.size = from.size;
    to.stream = from.stream;
    to.stack = from.stack;
    to.thread = from.thread;
    to.kind = from.kind;
    to.memory = from.memory;
    to.device = from.device;
    to.flags = from.flags;
    to.extra = from.extra;
    to.free_stack = from.free_stack;
    to.pool = from.pool;
    to.call = from.call;
    to.check = from.check;
}

LiveTable::LiveTable(EventRecord* slots, std::size_t count)
    : slots_(slots), mask_(count / trace::kLiveShards - 1) {}

LiveTable::Place LiveTable::place_of(AddressSpace space, std::uint64_t address) {
    const std::uint64_t hash = hash_of(space, address);
    const auto shard = static_cast<std::size_t>(hash >> 58);
    static_assert(trace::kLiveShards == 64);
    return {&shards_[shard], slots_ + shard * (mask_ + 1), static_cast<std::size_t>(hash) & mask_};
}

/// The entry's index in the shard, or that of the free slot where it would go. There always is a
/// free one.
std::size_t LiveTable::search(const Place& place, AddressSpace space, std::uint64_t address) const {
    std::size_t index = place.home;
    for (; !is_free(place.slots[index]); index = (index + 1) & mask_) {
        const EventRecord& slot = place.slots[index];
        if (slot.address == address && space_of_event(slot) == space) break;
    }
    return index;
}

bool LiveTable::insert(const EventRecord& record, EventRecord& replaced) {
    const Place place = place_of(space_of_event(record), record.address);
    replaced.sequence.store(0, std::memory_order_relaxed);
    if (!place.shard->lock.lock()) return false;
    EventRecord& slot = place.slots[search(place, space_of_event(record), record.address)];
    const bool known = !is_free(slot);
    const std::uint32_t count = place.shard->count.load(std::memory_order_relaxed);
    const bool room = known || count < (mask_ + 1) * kFullEighths / 8;
    if (known) {
        publish(replaced, slot);
        clear(slot);
    }
    if (room) publish(slot, record);
    if (room && !known) place.shard->count.store(count + 1, std::memory_order_relaxed);
    place.shard->lock.unlock();
    return room;
}

bool LiveTable::find(AddressSpace space, std::uint64_t address, EventRecord& found) {
    const Place place = place_of(space, address);
    if (!place.shard->lock.lock()) return false;
    const EventRecord& slot = place.slots[search(place, space, address)];
    const bool there = !is_free(slot);
    if (there) publish(found, slot);
    place.shard->lock.unlock();
    return there;
}

bool LiveTable::take(AddressSpace space, std::uint64_t address, EventRecord& taken) {
    const Place place = place_of(space, address);
    if (!place.shard->lock.lock()) return false;
    const std::size_t index = search(place, space, address);
    const bool there = !is_free(place.slots[index]);
    if (there) {
        publish(taken, place.slots[index]);
        remove(place, index);
    }
    place.shard->lock.unlock();
    return there;
}

/// Backward shift: no tombstones, so that search() stays short however long the program runs.
void LiveTable::remove(const Place& place, std::size_t hole) {
    clear(place.slots[hole]);
    for (std::size_t next = (hole + 1) & mask_; !is_free(place.slots[next]);
         next = (next + 1) & mask_) {
        const EventRecord& entry = place.slots[next];
        const std::size_t home = place_of(space_of_event(entry), entry.address).home;
        // It may move into the hole if its home is not behind it, seen around the ring.
        if (((next - home) & mask_) < ((next - hole) & mask_)) continue;
        publish(place.slots[hole], entry);
        clear(place.slots[next]);
        hole = next;
    }
    const std::uint32_t count = place.shard->count.load(std::memory_order_relaxed);
    place.shard->count.store(count - 1, std::memory_order_relaxed);
}

void LiveTable::populate_some() {
    const std::size_t bytes = (mask_ + 1) * trace::kLiveShards * sizeof(EventRecord);
    if (populated_.load(std::memory_order_relaxed) >= bytes) return;
    const std::size_t from = populated_.fetch_add(kPopulateBytes, std::memory_order_relaxed);
    if (from < bytes) {
        populate_pages(reinterpret_cast<std::byte*>(slots_) + from,
                       std::min(kPopulateBytes, bytes - from));
    }
}

std::uint64_t LiveTable::size() const {
    std::uint64_t sum = 0;
    for (const Shard& shard : shards_)
        sum += shard.count.load(std::memory_order_relaxed);
    return sum;
}

bool LiveTable::take_if(bool (*chosen)(const EventRecord&, void* context), void* context,
                        std::uint32_t& shard, EventRecord& taken) {
    for (; shard < trace::kLiveShards; ++shard) {
        const Place place{&shards_[shard], slots_ + shard * (mask_ + 1), 0};
        // Where nothing is, nothing is read: the pages of the file stay untouched.
        if (place.shard->count.load(std::memory_order_relaxed) == 0) continue;
        if (!place.shard->lock.lock()) continue;
        bool there = false;
        for (std::size_t index = 0; index <= mask_ && !there; ++index) {
            if (is_free(place.slots[index]) || !chosen(place.slots[index], context)) continue;
            there = true;
            publish(taken, place.slots[index]);
            remove(place, index);
        }
        place.shard->lock.unlock();
        if (there) return true;
    }
    return false;
}

} // namespace cachealloc
