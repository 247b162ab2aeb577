// __device__ and __constant__ variables by the address of their host shadow.
#include "tests/simcuda/runtime/kernels.h"
#include "tests/simcuda/runtime/pointers.h"
#include "tests/simcuda/runtime/state.h"

namespace simcuda::runtime {
namespace {

/// The address of `bytes` bytes at `offset` inside the variable; cudaErrorInvalidValue if they do
/// not fit.
Result part(const Driver& driver, const void* symbol, size_t offset, size_t bytes,
            CUdeviceptr& address) {
    size_t size = 0;
    Result result = variable_address(driver, symbol, address, size);
    if (result.ok() && (offset > size || bytes > size - offset)) {
        return cudaErrorInvalidValue;
    }
    address += offset;
    return result;
}

} // namespace
} // namespace simcuda::runtime

RUNTIME_API(context, cudaGetSymbolAddress, (void** out, const void* symbol), {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    Result result = variable_address(driver, symbol, address, bytes);
    *out = pointer(address);
    return result;
})

RUNTIME_API(context, cudaGetSymbolSize, (size_t * out, const void* symbol), {
    CUdeviceptr address = 0;
    return variable_address(driver, symbol, address, *out);
})

RUNTIME_TWINS(_ptds, cudaMemcpyToSymbol,
              (const void* symbol, const void* src, size_t bytes, size_t offset,
               cudaMemcpyKind kind),
              {
                  CUdeviceptr address = 0;
                  Result result = part(driver, symbol, offset, bytes, address);
                  if (!result.ok()) {
                      return result;
                  }
                  return kind == cudaMemcpyHostToDevice
                             ? driver.cuMemcpyHtoD(address, src, bytes)
                             : driver.cuMemcpy(address, device(src), bytes);
              })

RUNTIME_TWINS(_ptds, cudaMemcpyFromSymbol,
              (void* dst, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind), {
                  CUdeviceptr address = 0;
                  Result result = part(driver, symbol, offset, bytes, address);
                  if (!result.ok()) {
                      return result;
                  }
                  return kind == cudaMemcpyDeviceToHost
                             ? driver.cuMemcpyDtoH(dst, address, bytes)
                             : driver.cuMemcpy(device(dst), address, bytes);
              })
