#include "tests/order/kernels.h"

#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

extern "C" __global__ void order_read(const unsigned char* from, unsigned char* to,
                                      std::size_t bytes, std::uint64_t ns) {
    app::spin_ns(ns);
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        to[i] = from[i];
    }
}

SIMCUDA_TWIN(order_read) {
    auto from = simcuda_arg<const unsigned char*>(args, 0);
    auto to = simcuda_arg<unsigned char*>(args, 1);
    auto bytes = simcuda_arg<std::size_t>(args, 2);
    sim->reads(sim, from, bytes);
    sim->writes(sim, to, bytes);
    sim->duration_ns(sim, simcuda_arg<std::uint64_t>(args, 3));
    simcuda_body(sim, [=] { std::memcpy(to, from, bytes); });
}

extern "C" __global__ void order_fill(unsigned char* to, unsigned char value, std::size_t bytes,
                                      std::uint64_t ns) {
    app::spin_ns(ns);
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        to[i] = value;
    }
}

SIMCUDA_TWIN(order_fill) {
    auto to = simcuda_arg<unsigned char*>(args, 0);
    auto value = simcuda_arg<unsigned char>(args, 1);
    auto bytes = simcuda_arg<std::size_t>(args, 2);
    sim->writes(sim, to, bytes);
    sim->duration_ns(sim, simcuda_arg<std::uint64_t>(args, 3));
    simcuda_body(sim, [=] { std::memset(to, value, bytes); });
}

namespace order {

cudaError_t read_late(cudaStream_t stream, const Byte* from, Byte* to, std::size_t bytes,
                      std::uint64_t ns) {
    order_read<<<64, 256, 0, stream>>>(from, to, bytes, ns);
    return cudaGetLastError();
}

cudaError_t fill(cudaStream_t stream, Byte* to, Byte value, std::size_t bytes, std::uint64_t ns) {
    order_fill<<<64, 256, 0, stream>>>(to, value, bytes, ns);
    return cudaGetLastError();
}

cudaError_t fill_early(cudaStream_t stream, Byte* to, Byte value, std::size_t bytes) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(64);
    config.blockDim = dim3(256);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, order_fill, to, value, bytes, std::uint64_t{0});
}

} // namespace order
