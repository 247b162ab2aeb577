#include "shim/record_times.h"

namespace cachealloc::shim {

void RecordTimes::recording(CUevent event) {
    const std::uint64_t number = clock_.fetch_add(1, std::memory_order_seq_cst) + 1;
    Entry& entry = entries_[place(event)];
    entry.number.store(number, std::memory_order_relaxed);
    entry.mixed.store(mix(key(event), number), std::memory_order_release);
}

bool RecordTimes::after(CUevent event, std::uint64_t time) const {
    const Entry& entry = entries_[place(event)];
    const std::uint64_t mixed = entry.mixed.load(std::memory_order_acquire);
    const std::uint64_t number = entry.number.load(std::memory_order_relaxed);
    return number > time && mixed == mix(key(event), number);
}

} // namespace cachealloc::shim
