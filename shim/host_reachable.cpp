#include "shim/host_reachable.h"

#include <algorithm>

namespace cachealloc::shim {

void HostReachable::managed(std::uintptr_t address) {
    add(address);
}

void HostReachable::managed_for_ever() {
    count_.fetch_add(1, std::memory_order_release);
}

void HostReachable::pinned(std::uintptr_t address, std::uint64_t bytes) {
    if (bytes > kLibraryBytes || address == 0) return;
    const std::lock_guard lock(mutex_);
    for (Pinned& entry : pinned_) {
        if (entry.address != 0 && entry.address != address) continue;
        if (entry.address == 0) pinned_count_.fetch_add(1, std::memory_order_release);
        entry = {address, bytes};
        return;
    }
}

std::uint64_t HostReachable::pinned_bytes(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    for (const Pinned& entry : pinned_) {
        if (address != 0 && entry.address == address) return entry.bytes;
    }
    return 0;
}

void HostReachable::mapped(std::uintptr_t address, std::uint64_t bytes) {
    asked_.fetch_add(1, std::memory_order_relaxed);
    std::uint64_t largest = largest_.load(std::memory_order_relaxed);
    while (largest < bytes &&
           !largest_.compare_exchange_weak(largest, bytes, std::memory_order_relaxed)) {
    }
    if (bytes == 0 || bytes > kLibraryBytes) add(address);
}

void HostReachable::add(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    if (std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end()) return;
    const auto free = std::find(addresses_.begin(), addresses_.end(), std::uintptr_t{0});
    if (free != addresses_.end()) *free = address;
    count_.fetch_add(1, std::memory_order_release);
}

bool HostReachable::freeing(std::uintptr_t address) {
    if (address == 0 || (!any() && pinned_count_.load(std::memory_order_acquire) == 0))
        return false;
    const std::lock_guard lock(mutex_);
    for (Pinned& entry : pinned_) {
        if (entry.address != address) continue;
        entry = {};
        pinned_count_.fetch_sub(1, std::memory_order_release);
    }
    const auto found = std::find(addresses_.begin(), addresses_.end(), address);
    if (found == addresses_.end()) return false;
    *found = 0;
    count_.fetch_sub(1, std::memory_order_release);
    return true;
}

} // namespace cachealloc::shim
