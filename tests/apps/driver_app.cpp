// A plain driver API program, linked with -lcuda: no runtime, kernel from PTX.
//
// stdout: one line, the same wherever it runs.   --iterations N (50)
#include "tests/simcuda/twin.h"

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Word = std::uint32_t;

void check(CUresult result, const char* call, int line) {
    if (result != CUDA_SUCCESS) {
        const char* name = nullptr;
        cuGetErrorName(result, &name);
        std::fprintf(stderr, "driver_app:%d: %s: %s\n", line, call, name ? name : "unknown error");
        std::exit(1);
    }
}

#define DRIVER_CHECK(call) check((call), #call, __LINE__)

/// data[i] = data[i] * factor + i; what the PTX below does.
Word scaled(Word word, Word factor, Word i) {
    return word * factor + i;
}

const char* const kPtx = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry scale_words(
    .param .u64 data_param,
    .param .u32 count_param,
    .param .u32 factor_param)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<5>;

    ld.param.u64 %rd1, [data_param];
    ld.param.u32 %r1, [count_param];
    ld.param.u32 %r2, [factor_param];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r6, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    mad.lo.s32 %r8, %r7, %r2, %r6;
    st.global.u32 [%rd4], %r8;
DONE:
    ret;
}
)";

} // namespace

SIMCUDA_TWIN(scale_words) {
    auto address = simcuda_arg<CUdeviceptr>(args, 0);
    auto count = simcuda_arg<Word>(args, 1);
    auto factor = simcuda_arg<Word>(args, 2);
    auto* data = reinterpret_cast<Word*>(address);
    sim->reads(sim, data, count * sizeof(Word));
    sim->writes(sim, data, count * sizeof(Word));
    simcuda_body(sim, [=] {
        for (Word i = 0; i < count; ++i) {
            data[i] = scaled(data[i], factor, i);
        }
    });
}

int main(int argc, char** argv) {
    int iterations = argc == 3 ? std::atoi(argv[2]) : 50;
    DRIVER_CHECK(cuInit(0));
    CUdevice device = 0;
    CUcontext context = nullptr;
    DRIVER_CHECK(cuDeviceGet(&device, 0));
    DRIVER_CHECK(cuDevicePrimaryCtxRetain(&context, device));
    DRIVER_CHECK(cuCtxSetCurrent(context));
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    DRIVER_CHECK(cuModuleLoadData(&module, kPtx));
    DRIVER_CHECK(cuModuleGetFunction(&kernel, module, "scale_words"));
    CUstream stream = nullptr;
    DRIVER_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    std::uint64_t total = 0;
    std::uint64_t expected = 0;
    for (int iteration = 0; iteration < iterations; ++iteration) {
        Word count = 1000u + 7919u * static_cast<Word>(iteration % 13);
        Word factor = 2u * static_cast<Word>(iteration) + 1u;
        std::size_t bytes = count * sizeof(Word);
        CUdeviceptr data = 0;
        CUdeviceptr copy = 0;
        DRIVER_CHECK(cuMemAlloc(&data, bytes));
        DRIVER_CHECK(cuMemAlloc(&copy, bytes));
        DRIVER_CHECK(cuMemsetD32Async(data, 0x01010101u, count, stream));
        void* args[] = {&data, &count, &factor};
        DRIVER_CHECK(
            cuLaunchKernel(kernel, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, args, nullptr));
        DRIVER_CHECK(cuMemcpyDtoDAsync(copy, data, bytes, stream));
        DRIVER_CHECK(cuMemFree(data)); // Natively waits for the work above.
        std::vector<Word> host(count);
        DRIVER_CHECK(cuStreamSynchronize(stream));
        DRIVER_CHECK(cuMemcpyDtoH(host.data(), copy, bytes));
        DRIVER_CHECK(cuMemFree(copy));
        for (Word i = 0; i < count; ++i) {
            total += host[i];
            expected += scaled(0x01010101u, factor, i);
        }
    }
    DRIVER_CHECK(cuStreamDestroy(stream));
    DRIVER_CHECK(cuModuleUnload(module));
    DRIVER_CHECK(cuDevicePrimaryCtxRelease(device));
    std::printf("driver_app: %d iterations, checksum %016llx, %s\n", iterations,
                static_cast<unsigned long long>(total), total == expected ? "right" : "WRONG");
    return total == expected ? 0 : 1;
}
