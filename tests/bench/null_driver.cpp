// A driver whose functions do nothing and succeed: what a call costs under the preload beyond
// the driver's own work can then be measured to the nanosecond, on any machine.
//
// Device addresses are made up. One context, always current. Events have finished unless
// null_driver_busy(1) says that the device is at work.
#include <atomic>
#include <cstddef>
#include <cstdint>

#define DRIVER_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kNotFound = 500;
constexpr int kNotReady = 600;
constexpr std::uintptr_t kContext = 0x1000;
constexpr std::size_t kDeviceBytes = std::size_t{128} << 30;
constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;

std::atomic<int> g_busy{0};
std::atomic<std::uint64_t> g_next_address{std::uint64_t{0x7f} << 32};
std::atomic<std::uintptr_t> g_next_handle{0x2000};

int new_handle(void** handle) {
    *handle = reinterpret_cast<void*>(g_next_handle.fetch_add(16, std::memory_order_relaxed));
    return 0;
}

} // namespace

DRIVER_EXPORT void null_driver_busy(int busy) {
    g_busy.store(busy, std::memory_order_relaxed);
}

DRIVER_EXPORT int cuInit(unsigned) {
    return 0;
}
DRIVER_EXPORT int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}
DRIVER_EXPORT int cuDeviceGet(int* device, int) {
    *device = 0;
    return 0;
}
DRIVER_EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
    *bytes = kDeviceBytes;
    return 0;
}

DRIVER_EXPORT int cuDeviceGetCount(int* count) {
    *count = 1;
    return 0;
}
DRIVER_EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
    *context = reinterpret_cast<void*>(kContext);
    return 0;
}
DRIVER_EXPORT int cuDeviceGetDefaultMemPool(void** pool, int) {
    *pool = reinterpret_cast<void*>(kContext + 1);
    return 0;
}
DRIVER_EXPORT int cuDeviceGetMemPool(void** pool, int) {
    return cuDeviceGetDefaultMemPool(pool, 0);
}
DRIVER_EXPORT int cuMemPoolGetAttribute(void*, int, void* value) {
    *static_cast<int*>(value) = 1;
    return 0;
}
DRIVER_EXPORT int cuMemPoolGetAccess(int* flags, void*, void*) {
    *flags = 0;
    return 0;
}

DRIVER_EXPORT int cuCtxGetCurrent(void** context) {
    *context = reinterpret_cast<void*>(kContext);
    return 0;
}
DRIVER_EXPORT int cuCtxSetCurrent(void*) {
    return 0;
}
DRIVER_EXPORT int cuCtxPushCurrent_v2(void*) {
    return 0;
}
DRIVER_EXPORT int cuCtxPopCurrent_v2(void** context) {
    return cuCtxGetCurrent(context);
}
DRIVER_EXPORT int cuCtxGetId(void*, unsigned long long* id) {
    *id = 1;
    return 0;
}
DRIVER_EXPORT int cuCtxGetDevice(int* device) {
    *device = 0;
    return 0;
}
DRIVER_EXPORT int cuCtxSynchronize() {
    return 0;
}
DRIVER_EXPORT int cuCtxRecordEvent(void*, void*) {
    return 0;
}
DRIVER_EXPORT int cuCtxWaitEvent(void*, void*) {
    return 0;
}

DRIVER_EXPORT int cuEventCreate(void** event, unsigned) {
    return new_handle(event);
}
DRIVER_EXPORT int cuEventDestroy_v2(void*) {
    return 0;
}
DRIVER_EXPORT int cuEventRecord(void*, void*) {
    return 0;
}
DRIVER_EXPORT int cuEventQuery(void*) {
    return g_busy.load(std::memory_order_relaxed) != 0 ? kNotReady : 0;
}
DRIVER_EXPORT int cuStreamQuery(void*) {
    return cuEventQuery(nullptr);
}
DRIVER_EXPORT int cuStreamSynchronize(void*) {
    return 0;
}
DRIVER_EXPORT int cuPointerGetAttribute(void* value, int, std::uint64_t) {
    *static_cast<unsigned*>(value) = 2; // device memory
    return 0;
}
DRIVER_EXPORT int cuStreamCreate(void** stream, unsigned) {
    return new_handle(stream);
}
DRIVER_EXPORT int cuStreamDestroy_v2(void*) {
    return 0;
}
DRIVER_EXPORT int cuStreamWaitEvent(void*, void*, unsigned) {
    return 0;
}
DRIVER_EXPORT int cuStreamGetId(void* stream, unsigned long long* id) {
    *id = reinterpret_cast<std::uintptr_t>(stream);
    return 0;
}
DRIVER_EXPORT int cuStreamGetCtx(void*, void** context) {
    return cuCtxGetCurrent(context);
}
DRIVER_EXPORT int cuStreamIsCapturing(void*, int* status) {
    *status = 0;
    return 0;
}
DRIVER_EXPORT int cuThreadExchangeStreamCaptureMode(int*) {
    return 0;
}

DRIVER_EXPORT int cuMemAlloc_v2(std::uint64_t* pointer, std::size_t bytes) {
    const std::uint64_t whole = (bytes + kGranule - 1) / kGranule * kGranule;
    *pointer = g_next_address.fetch_add(whole, std::memory_order_relaxed);
    return 0;
}
DRIVER_EXPORT int cuMemFree_v2(std::uint64_t) {
    return 0;
}
DRIVER_EXPORT int cuMemAllocAsync(std::uint64_t* pointer, std::size_t bytes, void*) {
    return cuMemAlloc_v2(pointer, bytes);
}
DRIVER_EXPORT int cuMemFreeAsync(std::uint64_t, void*) {
    return 0;
}

// What a launch natively costs is nothing here: the call and the return remain.
DRIVER_EXPORT int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, void*, void**, void**) {
    return 0;
}
DRIVER_EXPORT int cuLaunchKernelEx(const void*, void*, void**, void**) {
    return 0;
}
DRIVER_EXPORT int cuMemsetD8Async(std::uint64_t, unsigned char, std::size_t, void*) {
    return 0;
}
DRIVER_EXPORT int cuMemcpyHtoDAsync_v2(std::uint64_t, const void*, std::size_t, void*) {
    return 0;
}
DRIVER_EXPORT int cuMemcpyDtoHAsync_v2(void*, std::uint64_t, std::size_t, void*) {
    return 0;
}
DRIVER_EXPORT int cuGraphInstantiateWithFlags(void** executable, void*, unsigned long long) {
    return new_handle(executable);
}
DRIVER_EXPORT int cuGraphGetNodes(void*, void*, std::size_t* count) {
    *count = 0;
    return 0;
}
DRIVER_EXPORT int cuGraphNodeGetType(void*, int* type) {
    *type = 0;
    return 0;
}
DRIVER_EXPORT int cuGraphLaunch(void*, void*) {
    return 0;
}
