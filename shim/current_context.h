// Makes a context current for a scope, if it is not, and puts the former one back.
#pragma once

#include "shim/driver.h"

namespace cachealloc::shim {

class CurrentContext {
  public:
    explicit CurrentContext(CUcontext context) {
        CUcontext current = nullptr;
        if (real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) return;
        pushed_ = real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    }
    ~CurrentContext() {
        CUcontext popped = nullptr;
        if (pushed_) real.cuCtxPopCurrent_v2(&popped);
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

  private:
    bool pushed_ = false;
};

} // namespace cachealloc::shim
