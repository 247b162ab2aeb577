#include "core/record/live_table.h"

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
    : slots_(slots), most_(count / trace::kLiveShards) {
    for (Shard& shard : shards_)
        shard.mask.store(static_cast<std::uint32_t>(std::min(kFirstSlots, most_) - 1));
}

LiveTable::Place LiveTable::place_of(AddressSpace space, std::uint64_t address) {
    const std::uint64_t hash = hash_of(space, address);
    const auto shard = static_cast<std::size_t>(hash >> 58);
    static_assert(trace::kLiveShards == 64);
    return {&shards_[shard], slots_ + shard * most_, hash};
}

/// The entry's index in the shard, or that of the free slot where it would go. There always is a
/// free one.
std::size_t LiveTable::search(const Place& place, AddressSpace space, std::uint64_t address) {
    const std::size_t mask = place.shard->mask.load(std::memory_order_relaxed);
    std::size_t index = place.home(mask);
    for (; !is_free(place.slots[index]); index = (index + 1) & mask) {
        const EventRecord& slot = place.slots[index];
        if (slot.address == address && space_of_event(slot) == space) break;
    }
    return index;
}

std::size_t LiveTable::home_of(const EventRecord& entry, std::size_t mask) {
    return static_cast<std::size_t>(hash_of(space_of_event(entry), entry.address)) & mask;
}

/// Doubles the slots in use while half of them are taken. Entries go to their new places one by
/// one, each copied before it is cleared; every move brings one nearer to its home, so the passes
/// end, and then each is found again.
void LiveTable::make_room(const Place& place) {
    std::size_t mask = place.shard->mask.load(std::memory_order_relaxed);
    const std::size_t count = place.shard->count.load(std::memory_order_relaxed);
    while (count > mask / 2 && mask + 1 < most_) {
        mask = 2 * mask + 1;
        place.shard->mask.store(static_cast<std::uint32_t>(mask), std::memory_order_relaxed);
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t index = 0; index <= mask; ++index) {
                EventRecord& entry = place.slots[index];
                if (is_free(entry)) continue;
                std::size_t to = home_of(entry, mask);
                while (to != index && !is_free(place.slots[to]))
                    to = (to + 1) & mask;
                if (to == index) continue;
                publish(place.slots[to], entry);
                clear(entry);
                moved = true;
            }
        }
    }
}

bool LiveTable::insert(const EventRecord& record, EventRecord& replaced) {
    const Place place = place_of(space_of_event(record), record.address);
    replaced.sequence.store(0, std::memory_order_relaxed);
    if (!place.shard->lock.lock()) return false;
    make_room(place);
    EventRecord& slot = place.slots[search(place, space_of_event(record), record.address)];
    const bool known = !is_free(slot);
    const std::uint32_t count = place.shard->count.load(std::memory_order_relaxed);
    const bool room = known || count < most_ * kFullEighths / 8;
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
    const std::size_t mask = place.shard->mask.load(std::memory_order_relaxed);
    clear(place.slots[hole]);
    for (std::size_t next = (hole + 1) & mask; !is_free(place.slots[next]);
         next = (next + 1) & mask) {
        const EventRecord& entry = place.slots[next];
        const std::size_t home = home_of(entry, mask);
        // It may move into the hole if its home is not behind it, seen around the ring.
        if (((next - home) & mask) < ((next - hole) & mask)) continue;
        publish(place.slots[hole], entry);
        clear(place.slots[next]);
        hole = next;
    }
    const std::uint32_t count = place.shard->count.load(std::memory_order_relaxed);
    place.shard->count.store(count - 1, std::memory_order_relaxed);
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
        const Place place{&shards_[shard], slots_ + shard * most_, 0};
        // Where nothing is, nothing is read: the pages of the file stay untouched.
        if (place.shard->count.load(std::memory_order_relaxed) == 0) continue;
        if (!place.shard->lock.lock()) continue;
        bool there = false;
        const std::size_t mask = place.shard->mask.load(std::memory_order_relaxed);
        for (std::size_t index = 0; index <= mask && !there; ++index) {
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
