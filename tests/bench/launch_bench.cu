// Host time of one call that submits work, on a device that keeps up: nearly empty kernels and
// small memsets, on the legacy stream (--streams 0) or on N non-blocking ones in turn. Whatever the
// preload adds is the difference between two processes.
//
//   --streams N (0 when absent)   --stretches N (40)   --calls N (200, between synchronisations)
// One JSON line for each kind of call.
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <algorithm>
#include <dlfcn.h>
#include <vector>

extern "C" __global__ void launch_nothing(unsigned* word) {
    if (word != nullptr) *word = 1;
}

SIMCUDA_TWIN(launch_nothing) {
    (void)args;
    sim->duration_ns(sim, 1000);
    simcuda_body(sim, [] {});
}

namespace {

// As cuda.h has it; no toolkit's driver library is needed to link.
struct LaunchConfig {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    cudaStream_t stream;
    void* attributes;
    unsigned attribute_count;
};

void* g_driver = nullptr;

template <class Function>
void look_up(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(g_driver, name));
    app::require(function != nullptr, name, __FILE__, __LINE__);
}

template <class Call>
void measure(const char* what, const std::vector<cudaStream_t>& streams, int stretches, int calls,
             Call call) {
    std::vector<double> each;
    for (int stretch = -1; stretch < stretches; ++stretch) { // the first one is not counted
        const double start = app::now_s();
        std::size_t at = 0;
        for (int i = 0; i < calls; ++i) {
            call(streams[at], at);
            if (++at == streams.size()) at = 0;
        }
        const double spent = app::now_s() - start;
        CUDA_CHECK(cudaDeviceSynchronize());
        if (stretch >= 0) each.push_back(spent * 1e9 / calls);
    }
    std::sort(each.begin(), each.end());
    std::printf("{\"what\": \"%s\", \"ns\": %.1f, \"least\": %.1f}\n", what, each[each.size() / 2],
                each.front());
}

} // namespace

int main(int argc, char** argv) {
    const bool legacy = app::option(argc, argv, "--streams", nullptr) == nullptr;
    const int count = legacy ? 1 : app::option(argc, argv, "--streams", 1);
    const int stretches = app::option(argc, argv, "--stretches", 40);
    const int calls = app::option(argc, argv, "--calls", 200);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP launch_bench: no GPU");
        return 77;
    }
    void* memory = nullptr;
    CUDA_CHECK(cudaMalloc(&memory, 4096));
    std::vector<cudaStream_t> streams(static_cast<std::size_t>(count), nullptr);
    if (!legacy) {
        for (cudaStream_t& stream : streams)
            CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    g_driver = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE_TRUE(g_driver != nullptr);
    int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  cudaStream_t, void**, void**) = nullptr;
    int (*launch_ex)(const LaunchConfig*, void*, void**, void**) = nullptr;
    int (*set)(std::uint64_t, unsigned char, std::size_t, cudaStream_t) = nullptr;
    look_up("cuLaunchKernel", launch);
    look_up("cuLaunchKernelEx", launch_ex);
    look_up("cuMemsetD8Async", set);
    cudaFunction_t function = nullptr;
    CUDA_CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(launch_nothing)));

    unsigned* word = nullptr;
    void* parameters[] = {&word};
    LaunchConfig config{{1, 1, 1}, {32, 1, 1}, 0, nullptr, nullptr, 0};
    measure("cudaLaunchKernel", streams, stretches, calls,
            [&](cudaStream_t stream, std::size_t) { launch_nothing<<<1, 32, 0, stream>>>(word); });
    CUDA_CHECK_LAUNCH();
    int failed = 0;
    measure("cuLaunchKernel", streams, stretches, calls, [&](cudaStream_t stream, std::size_t) {
        failed |= launch(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
    });
    measure("cuLaunchKernelEx", streams, stretches, calls, [&](cudaStream_t stream, std::size_t) {
        config.stream = stream;
        failed |= launch_ex(&config, function, parameters, nullptr);
    });
    measure("cuMemsetD8Async", streams, stretches, calls, [&](cudaStream_t stream, std::size_t at) {
        failed |= set(reinterpret_cast<std::uint64_t>(memory) + 64 * at, 0, 64, stream);
    });
    REQUIRE_TRUE(failed == 0);
    CUDA_CHECK(cudaFree(memory));
    return 0;
}
