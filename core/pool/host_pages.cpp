#include "core/pool/host_pages.h"

#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace cachealloc {

void* map_host_pages(std::size_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_host_pages(void* memory, std::size_t bytes) {
    if (memory != nullptr) munmap(memory, bytes);
}

void zero_host_pages(void* memory, std::size_t bytes) {
    static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t end = begin + bytes;
    const std::uintptr_t first = (begin + page - 1) / page * page;
    const std::uintptr_t last = end / page * page;
    if (first >= last ||
        madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
        std::memset(memory, 0, bytes);
        return;
    }
    std::memset(memory, 0, first - begin);
    std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

} // namespace cachealloc
