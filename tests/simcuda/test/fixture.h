// What the simulator's tests share: a device with its primary context, kernels, short forms.
#pragma once

#include <cuda.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tests/simcuda/control.h"

namespace simtest {

namespace control = simcuda::control;

// A primary context made current, the earlier one again at the end; everything that the test leaves
// behind goes with it.
class Device {
  public:
    explicit Device(int ordinal = 0) : ordinal_(ordinal) {
        REQUIRE(cuInit(0) == CUDA_SUCCESS);
        REQUIRE(cuCtxGetCurrent(&before_) == CUDA_SUCCESS);
        REQUIRE(cuDevicePrimaryCtxRetain(&ctx_, ordinal) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(ctx_) == CUDA_SUCCESS);
        control::forget_findings();
    }
    ~Device() {
        control::forget_findings();
        cuCtxSetCurrent(before_);
        cuDevicePrimaryCtxRelease(ordinal_);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    CUcontext ctx() const { return ctx_; }

  private:
    int ordinal_;
    CUcontext ctx_ = nullptr;
    CUcontext before_ = nullptr;
};

inline CUdeviceptr alloc(std::size_t bytes) {
    CUdeviceptr p = 0;
    REQUIRE(cuMemAlloc(&p, bytes) == CUDA_SUCCESS);
    return p;
}
inline CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream s = nullptr;
    REQUIRE(cuStreamCreate(&s, flags) == CUDA_SUCCESS);
    return s;
}
inline CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    CUevent e = nullptr;
    REQUIRE(cuEventCreate(&e, flags) == CUDA_SUCCESS);
    return e;
}

CUfunction kernel(const char* name);
// Reads `bytes` at `from` late: their sum goes to `out` after `ns`.
CUresult launch_sum(CUstream s, CUdeviceptr out, CUdeviceptr from, unsigned bytes,
                    std::uint64_t ns);
// Writes `value` into `bytes` bytes at `to` after `ns`.
CUresult launch_fill(CUstream s, CUdeviceptr to, unsigned bytes, unsigned char value,
                     std::uint64_t ns);

constexpr std::uint64_t kMs = 1'000'000;

} // namespace simtest
