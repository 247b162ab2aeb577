#include "shim/virtual_memory.h"

namespace cachealloc::shim {

void VirtualMemory::created(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    physical_[handle] = {1, 0};
}

void VirtualMemory::retained(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = physical_.find(handle);
    if (found != physical_.end()) ++found->second.references;
}

bool VirtualMemory::released(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = physical_.find(handle);
    if (found == physical_.end() || found->second.references == 0) return false;
    if (--found->second.references != 0 || found->second.mappings != 0) return false;
    physical_.erase(found);
    return true;
}

void VirtualMemory::mapped(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    map_locked({address, bytes, handle});
}

void VirtualMemory::map_locked(const Mapping& mapping) {
    mappings_[mapping.address] = mapping;
    const auto found = physical_.find(mapping.handle);
    if (found != physical_.end()) ++found->second.mappings;
}

VirtualMemory::Ended VirtualMemory::unmapped(std::uint64_t address, std::uint64_t bytes) {
    Ended ended;
    const std::lock_guard lock(mutex_);
    auto at = mappings_.lower_bound(address);
    while (at != mappings_.end() && at->first < address + bytes) {
        ended.mappings.push_back(at->second);
        const auto found = physical_.find(at->second.handle);
        if (found != physical_.end() && --found->second.mappings == 0 &&
            found->second.references == 0) {
            ended.handles.push_back(found->first);
            physical_.erase(found);
        }
        at = mappings_.erase(at);
    }
    return ended;
}

void VirtualMemory::restore(const Ended& ended) {
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t handle : ended.handles)
        physical_[handle] = {0, 0};
    for (const Mapping& mapping : ended.mappings)
        map_locked(mapping);
}

} // namespace cachealloc::shim
