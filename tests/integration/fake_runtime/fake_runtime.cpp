// A libcudart that only says which of several it is.
#include <cstddef>

#define RUNTIME_EXPORT extern "C" __attribute__((visibility("default")))

RUNTIME_EXPORT int cudaMalloc(void** pointer, std::size_t) {
    *pointer = nullptr;
    return RUNTIME_ID + 1;
}
RUNTIME_EXPORT int cudaRuntimeGetVersion(int* version) {
    *version = RUNTIME_ID;
    return 0;
}
RUNTIME_EXPORT int cudaFree(void*) {
    return RUNTIME_ID + 2;
}
RUNTIME_EXPORT int cudaMallocAsync(void**, std::size_t, void*) {
    return RUNTIME_ID + 3;
}
RUNTIME_EXPORT int cudaFreeAsync(void*, void*) {
    return RUNTIME_ID + 4;
}
