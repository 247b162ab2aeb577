// A libcuda.so.1 that is nothing but names: enough to see which function each door hands out. Its
// functions only say who they are. It lacks cuStreamDestroy_v2 and has cuFutureCall, which no
// toolkit of today knows. Linked -Bsymbolic, as its look-up must hand out its own functions.
#include <cstdint>
#include <cstring>

#define DRIVER_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kNotFound = 500;
constexpr std::uint64_t kPerThreadDefaultStream = 2;

int fill(void** function, void* found, int* status) {
    *function = found;
    if (status != nullptr) *status = found == nullptr ? 1 : 0;
    return found == nullptr ? kNotFound : 0;
}

} // namespace

// Every function answers with a number of its own, shifted by the driver's (two are built).
#define NAMED(name, number)                                                                        \
    DRIVER_EXPORT int name() {                                                                     \
        return DRIVER_ID + number;                                                                 \
    }
NAMED(cuMemAlloc_v2, 1)
NAMED(cuMemAlloc, 2)
NAMED(cuMemFree_v2, 3)
NAMED(cuMemFreeAsync, 4)
NAMED(cuMemFreeAsync_ptsz, 5)
NAMED(cuMemGetInfo_v2, 6)
NAMED(cuCtxDestroy_v2, 7)
NAMED(cuDeviceGetCount, 8)
NAMED(cuFutureCall, 9)
NAMED(cuCtxGetCurrent, 10)

DRIVER_EXPORT int cuInit(unsigned) {
    return 0;
}
DRIVER_EXPORT int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}

DRIVER_EXPORT int cuGetProcAddress(const char* symbol, void** function, int version,
                                   std::uint64_t flags);

DRIVER_EXPORT int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                      std::uint64_t flags, int* status) {
    const auto is = [&](const char* name) { return std::strcmp(symbol, name) == 0; };
    const auto address = [](auto* named) { return reinterpret_cast<void*>(named); };
    if (is("cuMemAlloc"))
        return fill(function, version < 3020 ? address(cuMemAlloc) : address(cuMemAlloc_v2),
                    status);
    if (is("cuMemFree")) return fill(function, address(cuMemFree_v2), status);
    if (is("cuMemFreeAsync"))
        return fill(function,
                    (flags & kPerThreadDefaultStream) != 0 ? address(cuMemFreeAsync_ptsz)
                                                           : address(cuMemFreeAsync),
                    status);
    if (is("cuDeviceGetCount")) return fill(function, address(cuDeviceGetCount), status);
    if (is("cuFutureCall")) return fill(function, address(cuFutureCall), status);
    if (is("cuGetProcAddress"))
        return fill(function,
                    version < 12000 ? address(cuGetProcAddress) : address(cuGetProcAddress_v2),
                    status);
    return fill(function, nullptr, status);
}

DRIVER_EXPORT int cuGetProcAddress(const char* symbol, void** function, int version,
                                   std::uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
