#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace simcuda::runtime {

/// What a runtime call returns. Driver codes convert, since the two enumerations share their
/// numbers; the exceptions below are checked at compile time.
class Result {
  public:
    constexpr Result(cudaError_t code) : code_(code) {}
    constexpr Result(CUresult code) : code_(static_cast<cudaError_t>(code)) {}
    constexpr bool ok() const { return code_ == cudaSuccess; }
    constexpr cudaError_t code() const { return code_; }

  private:
    cudaError_t code_;
};

template <CUresult driver, cudaError_t runtime>
constexpr bool same_number = static_cast<int>(driver) == static_cast<int>(runtime);
static_assert(same_number<CUDA_ERROR_INVALID_VALUE, cudaErrorInvalidValue>);
static_assert(same_number<CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation>);
static_assert(same_number<CUDA_ERROR_NOT_INITIALIZED, cudaErrorInitializationError>);
static_assert(same_number<CUDA_ERROR_DEINITIALIZED, cudaErrorCudartUnloading>);
static_assert(same_number<CUDA_ERROR_NO_DEVICE, cudaErrorNoDevice>);
static_assert(same_number<CUDA_ERROR_INVALID_DEVICE, cudaErrorInvalidDevice>);
static_assert(same_number<CUDA_ERROR_INVALID_CONTEXT, cudaErrorDeviceUninitialized>);
static_assert(same_number<CUDA_ERROR_INVALID_HANDLE, cudaErrorInvalidResourceHandle>);
static_assert(same_number<CUDA_ERROR_NOT_FOUND, cudaErrorSymbolNotFound>);
static_assert(same_number<CUDA_ERROR_NOT_READY, cudaErrorNotReady>);
static_assert(same_number<CUDA_ERROR_ILLEGAL_ADDRESS, cudaErrorIllegalAddress>);
static_assert(same_number<CUDA_ERROR_NOT_SUPPORTED, cudaErrorNotSupported>);
static_assert(
    same_number<CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cudaErrorStreamCaptureUnsupported>);
static_assert(
    same_number<CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cudaErrorStreamCaptureInvalidated>);
static_assert(
    same_number<CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cudaErrorPeerAccessAlreadyEnabled>);

} // namespace simcuda::runtime
