// Last error, names and texts of errors.
#include "tests/simcuda/runtime/state.h"

extern "C" cudaError_t cudaGetLastError() {
    auto& state = simcuda::runtime::thread_state();
    cudaError_t error = state.last_error;
    state.last_error = cudaSuccess;
    return error;
}

extern "C" cudaError_t cudaPeekAtLastError() {
    return simcuda::runtime::thread_state().last_error;
}

extern "C" const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define ERROR_NAME(name)                                                                           \
    case name:                                                                                     \
        return #name;
#include "error_names.def"
    }
    return "unrecognized error code";
}

extern "C" const char* cudaGetErrorString(cudaError_t error) {
    using namespace simcuda::runtime;
    const char* text = nullptr;
    // The two interfaces use the same texts; without a driver the name has to do.
    if (prepare(Needs::driver).ok() &&
        driver_library().legacy.cuGetErrorString(static_cast<CUresult>(error), &text) ==
            CUDA_SUCCESS &&
        text) {
        return text;
    }
    return error == cudaSuccess ? "no error" : cudaGetErrorName(error);
}
