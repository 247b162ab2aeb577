#pragma once

#include <cstddef>

namespace cachealloc {

/// Zeroed host memory straight from the kernel, never from the application's malloc (which may be
/// the caller, or be replaced). Pages cost nothing until touched. Null on failure. Thread-safe.
void* map_host_pages(std::size_t bytes);

/// Gives back what map_host_pages() returned for the same size.
void unmap_host_pages(void* memory, std::size_t bytes);

/// Fills private memory with zeros; whole pages of it go back to the kernel until touched again.
void zero_host_pages(void* memory, std::size_t bytes);

} // namespace cachealloc
