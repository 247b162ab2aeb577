#pragma once

#include "tests/simcuda/runtime/driver.h"
#include "tests/simcuda/runtime/result.h"

#include <utility>

namespace simcuda::runtime {

/// What the runtime keeps per host thread.
struct ThreadState {
    cudaError_t last_error = cudaSuccess;
    int device = 0; ///< Chosen by cudaSetDevice; used while no context is current.
};
ThreadState& thread_state();

/// How much of CUDA a function needs before its body runs.
enum class Needs {
    nothing, ///< Not even the driver.
    driver,  ///< The driver's table: works without a device.
    init,    ///< cuInit has succeeded.
    context, ///< A context is current: the caller's own, else the primary one of its device.
};

/// Brings the calling thread to `needs`. Thread-safe. Retains a primary context at its first use
/// only; a program that brought its own context keeps it.
Result prepare(Needs needs);

/// The primary context of `device`, retained by the runtime; made at first use.
Result primary_context(int device, CUcontext& context);

/// cudaDeviceReset: destroys the primary context of the calling thread's device. Its next use
/// makes a new one.
Result reset_primary(const Driver& driver);

/// The device of the current context, else the one the thread chose.
Result current_device(const Driver& driver, int& device);

/// Keeps `result` as the thread's last error unless it is success, and hands it on.
cudaError_t remember(Result result);

/// The frame of every exported function.
template <typename Body>
cudaError_t call(Needs needs, DefaultStream kind, Body&& body) {
    Result ready = prepare(needs);
    if (!ready.ok()) {
        return remember(ready);
    }
    return remember(std::forward<Body>(body)(driver_library().view(kind)));
}

} // namespace simcuda::runtime

/// Defines an exported runtime function. The body, in braces, returns a Result and sees `driver`.
#define RUNTIME_API(needs, name, params, ...)                                                      \
    extern "C" cudaError_t name params {                                                           \
        using namespace simcuda::runtime;                                                          \
        return call(Needs::needs, DefaultStream::legacy,                                           \
                    [&]([[maybe_unused]] const Driver& driver) -> Result __VA_ARGS__);             \
    }

/// Defines a function and its per-thread default stream twin (suffix _ptsz or _ptds).
#define RUNTIME_TWINS(suffix, name, params, ...)                                                   \
    RUNTIME_API(context, name, params, __VA_ARGS__)                                                \
    extern "C" cudaError_t name##suffix params {                                                   \
        using namespace simcuda::runtime;                                                          \
        return call(Needs::context, DefaultStream::per_thread,                                     \
                    [&]([[maybe_unused]] const Driver& driver) -> Result __VA_ARGS__);             \
    }
