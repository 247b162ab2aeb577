#include "core/record/statistic_log.h"

#include <cstring>

namespace cachealloc {

using trace::StatisticRecord;

StatisticRecord* StatisticLog::find(std::string_view name) const {
    auto* const records = reinterpret_cast<StatisticRecord*>(space_.data);
    const std::uint64_t used = space_.section->used.load(std::memory_order_acquire);
    const std::uint64_t count = used / sizeof(StatisticRecord);
    std::uint64_t at = next_.load(std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < count; ++i, ++at) {
        if (at >= count) at = 0;
        if (name != records[at].name) continue;
        next_.store(at + 1, std::memory_order_relaxed);
        return &records[at];
    }
    return nullptr;
}

StatisticRecord* StatisticLog::enter(std::string_view name) {
    if (!lock_.lock()) return nullptr;
    StatisticRecord* record = find(name); // another thread may have entered it meanwhile
    const std::uint64_t used = space_.section->used.load(std::memory_order_relaxed);
    if (record == nullptr && used + sizeof(StatisticRecord) <= space_.capacity()) {
        record = reinterpret_cast<StatisticRecord*>(space_.data + used);
        std::memcpy(record->name, name.data(), name.size());
        space_.section->used.store(used + sizeof(StatisticRecord), std::memory_order_release);
    }
    lock_.unlock();
    return record;
}

bool StatisticLog::set(std::string_view name, std::uint64_t value, std::uint64_t now) {
    name = name.substr(0, sizeof StatisticRecord{}.name - 1);
    name = name.substr(0, name.find('\0'));
    StatisticRecord* record = find(name);
    if (record == nullptr) record = enter(name);
    if (record == nullptr) return false;
    record->value.store(value, std::memory_order_relaxed);
    record->time.store(now, std::memory_order_relaxed);
    return true;
}

} // namespace cachealloc
