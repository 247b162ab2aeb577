#include "tests/simcuda/runtime/driver.h"

#include <dlfcn.h>

namespace simcuda::runtime {
namespace {

// Per-thread twins of entries older than CUDA 7 came with CUDA 7.
constexpr int kFirstTwinVersion = 7000;

void* ask(PFN_cuGetProcAddress_v12000 get, const char* name, int version, cuuint64_t flags) {
    void* address = nullptr;
    // The real runtime passes no status, so that callers behind a preload must cope with null.
    CUresult result = get(name, &address, version, flags, nullptr);
    return result == CUDA_SUCCESS ? address : nullptr;
}

template <typename Function>
void look_up(PFN_cuGetProcAddress_v12000 get, const char* name, int version, bool twin,
             Entry<Function>& legacy, Entry<Function>& per_thread) {
    void* plain = ask(get, name, version, CU_GET_PROC_ADDRESS_DEFAULT);
    legacy.set(plain);
    if (!twin) {
        per_thread.set(plain);
        return;
    }
    int twin_version = version < kFirstTwinVersion ? kFirstTwinVersion : version;
    per_thread.set(ask(get, name, twin_version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
}

DriverLibrary* load() {
    auto* library = new DriverLibrary; // Never freed: exit handlers of the program still call us.
    void* handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) {
        library->status = CUDA_ERROR_NOT_FOUND;
        return library;
    }
    auto first =
        reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(handle, "cuGetProcAddress_v2"));
    if (!first) {
        library->status = CUDA_ERROR_NOT_FOUND;
        return library;
    }
    ask(first, "", 0, CU_GET_PROC_ADDRESS_DEFAULT);
    library->cuInit.set(ask(first, "cuInit", 2000, CU_GET_PROC_ADDRESS_DEFAULT));
    ask(first, "cuGetProcAddress", 11030, CU_GET_PROC_ADDRESS_DEFAULT);
    auto get = reinterpret_cast<PFN_cuGetProcAddress_v12000>(
        ask(first, "cuGetProcAddress", 12000, CU_GET_PROC_ADDRESS_DEFAULT));
    if (!get) {
        library->status = CUDA_ERROR_NOT_FOUND;
        return library;
    }
    library->get_proc_address = get;
#define ENTRY(name, version)                                                                       \
    look_up(get, #name, version, false, library->legacy.name, library->per_thread.name);
#define TWIN(name, version)                                                                        \
    look_up(get, #name, version, true, library->legacy.name, library->per_thread.name);
#include "driver_entries.def"
    library->status = CUDA_SUCCESS;
    return library;
}

} // namespace

const DriverLibrary& driver_library() {
    static const DriverLibrary* library = load();
    return *library;
}

} // namespace simcuda::runtime
