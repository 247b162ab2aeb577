#include "tests/random/kernels.h"

#include "tests/simcuda/twin.h"

#include <algorithm>
#include <cstring>

namespace random_programs {

namespace {

CUfunction g_fill = nullptr;
CUfunction g_copy = nullptr;

CUresult launch(const Calls& calls, CUfunction kernel, CUstream stream, void** arguments) {
    return calls.launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

} // namespace

bool load_kernels() {
    // The simulated CUDA finds kernels by their names; the image only has to be there.
    CUmodule module = nullptr;
    return cuModuleLoadData(&module, "random programs") == CUDA_SUCCESS &&
           cuModuleGetFunction(&g_fill, module, "random_fill") == CUDA_SUCCESS &&
           cuModuleGetFunction(&g_copy, module, "random_copy") == CUDA_SUCCESS;
}

CUresult launch_fill(const Calls& calls, CUstream stream, void* to, std::size_t bytes,
                     unsigned char value, std::uint64_t ns, bool early) {
    void* arguments[] = {&to, &bytes, &value, &ns};
    if (early) {
        CUlaunchAttribute attribute{};
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        CUlaunchConfig config{};
        config.gridDimX = config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = config.blockDimY = config.blockDimZ = 1;
        config.hStream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
        return calls.launch_ex(&config, g_fill, arguments, nullptr);
    }
    return launch(calls, g_fill, stream, arguments);
}

CUresult launch_copy(const Calls& calls, CUstream stream, void* to, std::size_t to_bytes,
                     const void* from, std::size_t from_bytes, std::uint64_t ns) {
    void* arguments[] = {&to, &to_bytes, &from, &from_bytes, &ns};
    return launch(calls, g_copy, stream, arguments);
}

} // namespace random_programs

SIMCUDA_TWIN(random_fill) {
    auto* const to = simcuda_arg<unsigned char*>(args, 0);
    const auto bytes = simcuda_arg<std::size_t>(args, 1);
    const auto value = simcuda_arg<unsigned char>(args, 2);
    sim->writes(sim, to, bytes);
    sim->duration_ns(sim, simcuda_arg<std::uint64_t>(args, 3) + 500);
    simcuda_body(sim, [=] {
        if (bytes != 0) std::memset(to, value, std::min(bytes, random_programs::kHead));
    });
}

SIMCUDA_TWIN(random_copy) {
    auto* const to = simcuda_arg<unsigned char*>(args, 0);
    const auto to_bytes = simcuda_arg<std::size_t>(args, 1);
    const auto* const from = simcuda_arg<const unsigned char*>(args, 2);
    const auto from_bytes = simcuda_arg<std::size_t>(args, 3);
    sim->reads(sim, from, from_bytes);
    sim->writes(sim, to, to_bytes);
    sim->duration_ns(sim, simcuda_arg<std::uint64_t>(args, 4) + 500);
    simcuda_body(sim, [=] {
        const auto bytes = std::min({to_bytes, from_bytes, random_programs::kHead});
        if (bytes != 0) std::memcpy(to, from, bytes);
    });
}
