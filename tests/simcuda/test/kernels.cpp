// The kernels of these tests, as host twins only.
#include "tests/simcuda/twin.h"

#include "fixture.h"

SIMCUDA_TWIN(sum) {
    const auto out = simcuda_arg<unsigned*>(args, 0);
    const auto from = simcuda_arg<const unsigned char*>(args, 1);
    const auto bytes = simcuda_arg<unsigned>(args, 2);
    sim->reads(sim, from, bytes);
    sim->writes(sim, out, sizeof *out);
    sim->duration_ns(sim, simcuda_arg<std::uint64_t>(args, 3));
    simcuda_body(sim, [=] {
        unsigned total = 0;
        for (unsigned i = 0; i < bytes; ++i) {
            total += from[i];
        }
        *out = total;
    });
}

SIMCUDA_TWIN(fill) {
    const auto to = simcuda_arg<unsigned char*>(args, 0);
    const auto bytes = simcuda_arg<unsigned>(args, 1);
    const auto value = simcuda_arg<unsigned char>(args, 2);
    sim->writes(sim, to, bytes);
    sim->duration_ns(sim, simcuda_arg<std::uint64_t>(args, 3));
    simcuda_body(sim, [=] { std::memset(to, value, bytes); });
}

// Writes `value` into `bytes` bytes at `to`, waits for the kernel in front of it, then reads as
// many at `from`.
SIMCUDA_TWIN(fill_then_read) {
    const auto to = simcuda_arg<unsigned char*>(args, 0);
    const auto from = simcuda_arg<const unsigned char*>(args, 1);
    const auto bytes = simcuda_arg<unsigned>(args, 2);
    sim->writes(sim, to, bytes);
    sim->waits_for_front(sim);
    sim->reads(sim, from, bytes);
    simcuda_body(sim, [=] { std::memset(to, from[0], bytes); });
}

namespace simtest {

CUfunction kernel(const char* name) {
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, "image") == CUDA_SUCCESS);
    CUfunction f = nullptr;
    REQUIRE(cuModuleGetFunction(&f, module, name) == CUDA_SUCCESS);
    return f;
}

CUresult launch_sum(CUstream s, CUdeviceptr out, CUdeviceptr from, unsigned bytes,
                    std::uint64_t ns) {
    void* args[] = {&out, &from, &bytes, &ns};
    return cuLaunchKernel(kernel("sum"), 1, 1, 1, 1, 1, 1, 0, s, args, nullptr);
}

CUresult launch_fill(CUstream s, CUdeviceptr to, unsigned bytes, unsigned char value,
                     std::uint64_t ns) {
    void* args[] = {&to, &bytes, &value, &ns};
    return cuLaunchKernel(kernel("fill"), 1, 1, 1, 1, 1, 1, 0, s, args, nullptr);
}

} // namespace simtest
