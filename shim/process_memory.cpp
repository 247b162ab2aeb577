#include "shim/process_memory.h"

#include "shim/log.h"
#include "shim/object_walk.h"

#include <algorithm>
#include <array>

#include <dlfcn.h>
#include <unistd.h>

namespace cachealloc::shim {

void ProcessMemory::open() {
    void* library = nullptr;
    {
        const std::lock_guard lock(object_walk_mutex());
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    using Start = int (*)();
    const auto start =
        reinterpret_cast<Start>(library != nullptr ? dlsym(library, "nvmlInit_v2") : nullptr);
    if (start == nullptr || start() != 0) {
        log_once("no-nvml", LogLevel::info,
                 "per_process_memory_fraction: no NVML, so that only the pools' memory counts");
        return;
    }
    find_ = reinterpret_cast<decltype(find_)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    list_ = reinterpret_cast<decltype(list_)>(
        dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
}

ProcessMemory::Device ProcessMemory::device(const char* bus_id) const {
    Device found = nullptr;
    return find_ != nullptr && find_(bus_id, &found) == 0 ? found : nullptr;
}

std::uint64_t ProcessMemory::bytes(Device device) const {
    if (list_ == nullptr || device == nullptr) return 0;
    std::array<Entry, 64> entries{};
    unsigned int count = entries.size();
    if (list_(device, &count, entries.data()) != 0) return 0; // more of them: not known
    const std::size_t known = std::min<std::size_t>(count, entries.size());
    return bytes_of({entries.data(), known}, static_cast<unsigned int>(getpid()));
}

std::uint64_t ProcessMemory::bytes_of(std::span<const Entry> entries, unsigned int pid) {
    const auto known = [](const Entry& entry) { return entry.bytes == ~0ULL ? 0 : entry.bytes; };
    std::uint64_t sum = 0;
    bool found = false;
    for (const Entry& entry : entries) {
        if (entry.pid != pid) continue;
        sum += known(entry);
        found = true;
    }
    if (found) return sum;
    return entries.size() == 1 ? known(entries.front()) : 0;
}

} // namespace cachealloc::shim
