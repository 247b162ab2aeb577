#include "core/pool/host_pages.h"

#include <sys/mman.h>

namespace cachealloc {

void* map_host_pages(std::size_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_host_pages(void* memory, std::size_t bytes) {
    if (memory != nullptr) munmap(memory, bytes);
}

} // namespace cachealloc
