// A library linked with a libcudart, as plug-ins and Python extensions are: its answers tell which
// runtime its calls reached, and whose symbols they bound to.
#include <cstddef>
#include <dlfcn.h>

extern "C" {
int cudaMalloc(void** pointer, std::size_t bytes);
int cudaFree(void* pointer);
int cudaMallocAsync(void** pointer, std::size_t bytes, void* stream);
int cudaFreeAsync(void* pointer, void* stream);

// Not one call may become a jump: it would hide this library from the callee.
__attribute__((visibility("default"))) int user_allocate() {
    void* pointer = nullptr;
    const volatile int result = cudaMalloc(&pointer, 1);
    return result;
}
__attribute__((visibility("default"))) int user_free() {
    const volatile int result = cudaFree(nullptr);
    return result;
}
__attribute__((visibility("default"))) int user_allocate_async() {
    void* pointer = nullptr;
    const volatile int result = cudaMallocAsync(&pointer, 1, nullptr);
    return result;
}
__attribute__((visibility("default"))) int user_free_async() {
    const volatile int result = cudaFreeAsync(nullptr, nullptr);
    return result;
}
__attribute__((visibility("default"))) const char* user_bound_to() {
    static Dl_info info;
    return dladdr(reinterpret_cast<void*>(cudaMalloc), &info) != 0 ? info.dli_fname : "";
}
}
