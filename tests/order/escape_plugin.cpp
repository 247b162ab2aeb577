// A library that finds the driver by itself. Loaded with RTLD_DEEPBIND its dlsym is the C
// library's, so that no preload sees what it calls.
#include <cuda.h>
#include <dlfcn.h>

namespace {

template <class Function>
Function find(void* driver, const char* name) {
    return reinterpret_cast<Function>(dlsym(driver, name));
}

} // namespace

// Fills the memory on a stream of its own that it creates now. Returns the driver's code.
extern "C" __attribute__((visibility("default"))) int
escape_fill(CUdeviceptr memory, std::size_t bytes, unsigned char value) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return CUDA_ERROR_NOT_FOUND;
    CUstream stream = nullptr;
    const CUresult created = find<CUresult (*)(CUstream*, unsigned)>(driver, "cuStreamCreate")(
        &stream, CU_STREAM_NON_BLOCKING);
    if (created != CUDA_SUCCESS) return created;
    return find<CUresult (*)(CUdeviceptr, unsigned char, std::size_t, CUstream)>(
        driver, "cuMemsetD8Async")(memory, value, bytes, stream);
}
