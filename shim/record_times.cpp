#include "shim/record_times.h"

namespace cachealloc::shim {

void RecordTimes::recording(CUevent event) {
    const std::uint64_t number = clock_.fetch_add(1, std::memory_order_seq_cst) + 1;
    Entry& entry = entries_[place(event)];
    entry.number.store(number, std::memory_order_relaxed);
    entry.mixed.store(mix(key(event), number), std::memory_order_release);
}

std::uint64_t RecordTimes::recorded(CUevent event) const {
    const Entry& entry = entries_[place(event)];
    const std::uint64_t mixed = entry.mixed.load(std::memory_order_acquire);
    const std::uint64_t number = entry.number.load(std::memory_order_relaxed);
    return mixed == mix(key(event), number) ? number : 0;
}

bool RecordTimes::after(CUevent event, std::uint64_t time) const {
    return recorded(event) > time;
}

bool RecordTimes::before(CUevent event, std::uint64_t time) const {
    const std::uint64_t number = recorded(event);
    return number > forgotten_.load(std::memory_order_seq_cst) && number <= time;
}

} // namespace cachealloc::shim
