// Host twins: how a kernel runs on the simulated CUDA.
//
// A kernel `k` has a twin, an exported function `simcuda_twin_<mangled name of k>` in the program.
// The twin runs when the kernel is launched. It copies its arguments, declares the bytes that the
// kernel reads and writes and how long it takes, and registers a body that runs when the virtual
// device gets there. Kernel and body share one __host__ __device__ function:
//
//     __host__ __device__ inline void fill_at(float* p, unsigned i, float v) { p[i] = v; }
//     extern "C" __global__ void fill(float* p, unsigned n, float v) {
//         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//         if (i < n) fill_at(p, i, v);
//     }
//     SIMCUDA_TWIN(fill) {
//         auto p = simcuda_arg<float*>(args, 0);
//         auto n = simcuda_arg<unsigned>(args, 1);
//         auto v = simcuda_arg<float>(args, 2);
//         sim->writes(sim, p, n * sizeof(float));
//         sim->duration_ns(sim, 5000);
//         simcuda_body(sim, [=] { for (unsigned i = 0; i < n; ++i) fill_at(p, i, v); });
//     }
//
// Link the program with -Wl,--export-dynamic-symbol='simcuda_twin_*'. Nothing here needs the
// simulated library at link time. Plain C++ may include this too (driver-API programs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

extern "C" {

// One launch, as its twin sees it. Valid only while the twin runs.
typedef struct SimKernel {
    unsigned grid[3];
    unsigned block[3];
    void* state; // the simulator's
    // Declares bytes that the kernel may read or write. Undeclared accesses are unseen by the race
    // oracle and the bounds checks, so a twin must declare everything that it touches.
    void (*reads)(struct SimKernel*, const void* p, std::size_t bytes);
    void (*writes)(struct SimKernel*, void* p, std::size_t bytes);
    // Virtual time from start to end; 2,000 ns unless set.
    void (*duration_ns)(struct SimKernel*, std::uint64_t ns);
    // What happens at the end of that time. The closure is copied; it must be trivially copyable.
    void (*body)(struct SimKernel*, void (*run)(void* closure), const void* closure,
                 std::size_t bytes);
    // For kernels launched with programmatic stream serialization: here the kernel waits for the
    // one in front of it (cudaGridDependencySynchronize). Accesses declared before this call are
    // made before that wait, later ones behind it. A kernel that never calls it never waits.
    void (*waits_for_front)(struct SimKernel*);
} SimKernel;

} // extern "C"

// Begins the definition of a twin; `kernel` is the mangled name (the plain one for extern "C").
#define SIMCUDA_TWIN(kernel)                                                                       \
    extern "C" __attribute__((visibility("default"), used)) void simcuda_twin_##kernel(            \
        [[maybe_unused]] SimKernel* sim, [[maybe_unused]] void** args)

// The launch's i-th argument, copied: the launch is asynchronous and args[] is the caller's stack.
template <class T>
inline T simcuda_arg(void** args, std::size_t i) {
    static_assert(std::is_trivially_copyable<T>::value, "kernel arguments are copied as bytes");
    T value;
    std::memcpy(&value, args[i], sizeof value);
    return value;
}

// Registers a lambda as the body.
template <class F>
inline void simcuda_body(SimKernel* sim, const F& f) {
    static_assert(std::is_trivially_copyable<F>::value, "capture pointers and plain values only");
    sim->body(
        sim, [](void* closure) { (*static_cast<F*>(closure))(); }, &f, sizeof f);
}

// Threads of the whole launch.
inline std::size_t simcuda_threads(const SimKernel* sim) {
    std::size_t n = 1;
    for (int i = 0; i < 3; ++i) {
        n *= std::size_t{sim->grid[i]} * sim->block[i];
    }
    return n;
}
