// The exported runtime names cudaMalloc, cudaFree, cudaMallocAsync and cudaFreeAsync.
//
// They exist to see the application's own call; the memory comes from the driver's entry points,
// which the runtime calls in turn. Each call goes to the caller's own libcudart: a process may hold
// several, with a device and a last error each, and in a Python extension none is in global scope.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cachealloc::shim {

enum class RuntimeFunction : std::uint8_t { malloc, free, malloc_async, free_async, count };

// cudaErrorInsufficientDriver, what the runtime says without a usable driver.
inline constexpr int kErrorInsufficientDriver = 35;

// The function that a call from `return_address` would reach without this library, null if there is
// none. Remembered per calling object; then lock-free, about 15 ns. An object that was unloaded is
// not mistaken for another one loaded in its place.
void* runtime_function(RuntimeFunction function, const void* return_address);

} // namespace cachealloc::shim
