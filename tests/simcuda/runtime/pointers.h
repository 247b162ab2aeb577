#pragma once

#include <cuda.h>

namespace simcuda::runtime {

/// Between the runtime's pointers and the driver's integers.
inline CUdeviceptr device(const void* address) {
    return reinterpret_cast<CUdeviceptr>(address);
}
inline void* pointer(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);
}

} // namespace simcuda::runtime
