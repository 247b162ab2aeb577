// Its constructor makes the process's first CUDA calls, while the dynamic linker is at work.
#include <cuda.h>

#include <cstdio>

namespace {

__attribute__((constructor)) void call_cuda() {
    CUcontext context = nullptr;
    CUdeviceptr device = 0;
    if (cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
        cuCtxSetCurrent(context) == CUDA_SUCCESS && cuMemAlloc(&device, 1234) == CUDA_SUCCESS) {
        std::printf("alloc pooled %llx 1234\n", device);
    }
}

} // namespace
