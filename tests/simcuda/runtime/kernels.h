#pragma once

#include "tests/simcuda/runtime/driver.h"
#include "tests/simcuda/runtime/result.h"

namespace simcuda::runtime {

/// The driver's function, in the current context, of a kernel that the program registered:
/// `kernel` is the address of its host stub or the handle __cudaGetKernel gave out. Its module is
/// loaded at the first use in each context. cudaErrorInvalidDeviceFunction for anything else.
/// Thread-safe.
Result kernel_function(const Driver& driver, const void* kernel, CUfunction& function);

/// The handle of a registered kernel; does not touch the driver.
Result kernel_handle(const void* host_stub, cudaKernel_t& handle);

/// Address and size, in the current context, of a registered __device__ or __constant__ variable.
Result variable_address(const Driver& driver, const void* host_variable, CUdeviceptr& address,
                        size_t& bytes);

} // namespace simcuda::runtime
