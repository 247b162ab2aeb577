// The kernels of the contract, from PTX (the program is plain C++), and their host twins.
#include "tests/contract/contract.h"
#include "tests/simcuda/twin.h"

#include <cstring>

namespace contract {

namespace {

const char* const kPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry contract_late_copy(
    .param .u64 to_param,
    .param .u64 from_param,
    .param .u32 words_param,
    .param .u64 ns_param)
{
    .reg .pred %p<3>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<12>;

    ld.param.u64 %rd1, [to_param];
    ld.param.u64 %rd2, [from_param];
    ld.param.u32 %r1, [words_param];
    ld.param.u64 %rd3, [ns_param];
    cvta.to.global.u64 %rd4, %rd1;
    cvta.to.global.u64 %rd5, %rd2;
    mov.u64 %rd6, %globaltimer;
    add.s64 %rd7, %rd6, %rd3;
SPIN:
    mov.u64 %rd8, %globaltimer;
    setp.lt.u64 %p1, %rd8, %rd7;
    @%p1 bra SPIN;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ntid.x;
COPY:
    setp.ge.u32 %p2, %r2, %r1;
    @%p2 bra DONE;
    mul.wide.u32 %rd9, %r2, 4;
    add.s64 %rd10, %rd5, %rd9;
    ld.volatile.global.u32 %r4, [%rd10];
    add.s64 %rd11, %rd4, %rd9;
    st.global.u32 [%rd11], %r4;
    add.u32 %r2, %r2, %r3;
    bra COPY;
DONE:
    ret;
}

.visible .entry contract_fault(
    .param .u64 address_param)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;

    ld.param.u64 %rd1, [address_param];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, 1;
    st.volatile.global.u32 [%rd2], %r1;
    ret;
}
)";

constexpr unsigned kThreads = 256;

} // namespace

Kernels::Kernels() {
    REQUIRE(cuModuleLoadData(&module_, kPtx) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&late_copy_, module_, "contract_late_copy") == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&fault_, module_, "contract_fault") == CUDA_SUCCESS);
    // Loaded for good before any capture begins.
    late_copy(nullptr, nullptr, 0, 0, nullptr);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

Kernels::~Kernels() {
    cuCtxSynchronize();
    cuModuleUnload(module_);
}

void Kernels::late_copy(void* to, const void* from, std::size_t bytes, unsigned ms,
                        cudaStream_t stream) const {
    REQUIRE(bytes % 4 == 0);
    CUdeviceptr target = address(to);
    CUdeviceptr source = address(from);
    auto words = static_cast<std::uint32_t>(bytes / 4);
    std::uint64_t ns = std::uint64_t{ms} * 1'000'000;
    void* arguments[] = {&target, &source, &words, &ns};
    REQUIRE(cuLaunchKernel(late_copy_, 1, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr) ==
            CUDA_SUCCESS);
}

void Kernels::fault(cudaStream_t stream) const {
    simcuda::control::set("fault", 1);
    CUdeviceptr nowhere = 0x100;
    void* arguments[] = {&nowhere};
    REQUIRE(cuLaunchKernel(fault_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr) ==
            CUDA_SUCCESS);
}

} // namespace contract

SIMCUDA_TWIN(contract_late_copy) {
    const auto to = reinterpret_cast<char*>(simcuda_arg<CUdeviceptr>(args, 0));
    const auto from = reinterpret_cast<const char*>(simcuda_arg<CUdeviceptr>(args, 1));
    const std::size_t bytes = std::size_t{simcuda_arg<std::uint32_t>(args, 2)} * 4;
    sim->duration_ns(sim, simcuda_arg<std::uint64_t>(args, 3) + 1000);
    if (bytes == 0) return;
    sim->reads(sim, from, bytes);
    sim->writes(sim, to, bytes);
    simcuda_body(sim, [=] { std::memcpy(to, from, bytes); });
}

// The simulator makes the kernel fault (its setting `fault`).
SIMCUDA_TWIN(contract_fault) {}
