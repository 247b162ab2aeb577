#pragma once

#include <cuda.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

namespace simcuda::runtime {

/// One driver entry point. Calling one that the driver does not have answers
/// CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, as the real runtime does.
template <typename Function>
class Entry;
template <typename... Arguments>
class Entry<CUresult (*)(Arguments...)> {
  public:
    CUresult operator()(Arguments... arguments) const {
        return address_ ? address_(arguments...) : CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
    }
    void set(void* address) { address_ = reinterpret_cast<CUresult (*)(Arguments...)>(address); }

  private:
    CUresult (*address_)(Arguments...) = nullptr;
};

/// The driver as one kind of caller sees it. Entries without a per-thread twin are equal in both.
struct Driver {
#define ENTRY(name, version) Entry<PFN_##name##_v##version> name;
#define TWIN(name, version) ENTRY(name, version)
#include "driver_entries.def"
};

/// What stream 0 means to the caller: the legacy stream, or its thread's own default stream
/// (functions with the suffix _ptsz or _ptds).
enum class DefaultStream { legacy, per_thread };

/// Both views of the driver and how it was reached.
struct DriverLibrary {
    CUresult status =
        CUDA_ERROR_NOT_INITIALIZED; ///< Not success: libcuda.so.1 is missing or alien.
    Entry<PFN_cuInit_v2000> cuInit;
    PFN_cuGetProcAddress_v12000 get_proc_address = nullptr;
    Driver legacy;
    Driver per_thread;

    const Driver& view(DefaultStream kind) const {
        return kind == DefaultStream::legacy ? legacy : per_thread;
    }
};

/// Loads the driver at the first call, the way libcudart does: dlopen("libcuda.so.1"),
/// dlsym("cuGetProcAddress_v2"), "cuGetProcAddress" asked of itself, every other name of the
/// answer. Never fails: the status is in the result. Thread-safe; lives until the process ends.
const DriverLibrary& driver_library();

} // namespace simcuda::runtime
