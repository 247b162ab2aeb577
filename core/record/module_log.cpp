#include "core/record/module_log.h"

#include <cstring>

namespace cachealloc {

using trace::ModuleRecord;

ModuleLog::ModuleLog(TraceFile& file, SectionSpace& space) : file_(file), space_(space) {}

bool ModuleLog::append(const ModuleRecord& record) {
    if (!lock_.lock()) return false;
    std::atomic<std::uint64_t>& used = space_.section->used;
    const std::uint64_t offset = used.load(std::memory_order_relaxed);
    const std::uint64_t end = offset + sizeof record;
    const bool room = end <= space_.ready() || file_.grow(space_, end);
    if (room) {
        std::memcpy(space_.data + offset, &record, sizeof record);
        used.store(end, std::memory_order_release);
    }
    lock_.unlock();
    return room;
}

std::uint32_t ModuleLog::size() const {
    return static_cast<std::uint32_t>(space_.section->used.load(std::memory_order_relaxed) /
                                      sizeof(ModuleRecord));
}

} // namespace cachealloc
