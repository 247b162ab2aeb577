// Every way a program launches a kernel that it has registered, checked by what the kernel wrote.
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

namespace {

using Word = std::uint32_t;

constexpr unsigned kBlock = 64;
constexpr unsigned kGrid = 3;
constexpr unsigned kWords = kBlock * kGrid;

__host__ __device__ inline void put(Word* data, std::size_t i, Word value) {
    data[i] = value + static_cast<Word>(i);
}

} // namespace

extern "C" __global__ void put_words(Word* data, Word value) {
    put(data, app::thread_index(), value);
}

SIMCUDA_TWIN(put_words) {
    auto data = simcuda_arg<Word*>(args, 0);
    auto value = simcuda_arg<Word>(args, 1);
    std::size_t threads = simcuda_threads(sim);
    sim->writes(sim, data, threads * sizeof(Word));
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < threads; ++i) {
            put(data, i, value);
        }
    });
}

namespace {

void expect(const Word* data, Word value, const char* way) {
    Word host[kWords] = {};
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < kWords; ++i) {
        if (host[i] != value + i) {
            std::fprintf(stderr, "%s: word %u is %u, not %u\n", way, i, host[i], value + i);
            std::exit(1);
        }
    }
    std::printf("%s: right\n", way);
}

} // namespace

int main() {
    Word* data = nullptr;
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), kWords * sizeof(Word)));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    auto* stub = reinterpret_cast<const void*>(put_words);
    Word value = 0;
    void* args[] = {&data, &value};

    put_words<<<kGrid, kBlock, 0, stream>>>(data, 10);
    CUDA_CHECK_LAUNCH();
    expect(data, 10, "<<< >>>");

    value = 20;
    CUDA_CHECK(cudaLaunchKernel(stub, dim3(kGrid), dim3(kBlock), args, 0, stream));
    value = 21; // The launch has its own copy of the arguments.
    expect(data, 20, "cudaLaunchKernel");

    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kGrid);
    config.blockDim = dim3(kBlock);
    config.stream = stream;
    value = 30;
    CUDA_CHECK(cudaLaunchKernelExC(&config, stub, args));
    expect(data, 30, "cudaLaunchKernelExC");

    value = 40;
    CUDA_CHECK(cudaLaunchCooperativeKernel(stub, dim3(kGrid), dim3(kBlock), args, 0, stream));
    expect(data, 40, "cudaLaunchCooperativeKernel");

    cudaKernel_t kernel = nullptr;
    CUDA_CHECK(cudaGetKernel(&kernel, stub));
    value = 50;
    CUDA_CHECK(cudaLaunchKernel(kernel, dim3(kGrid), dim3(kBlock), args, 0, stream));
    expect(data, 50, "cudaLaunchKernel of a handle");

    cudaFunction_t function = nullptr;
    cudaFuncAttributes attributes{};
    int blocks = 0;
    CUDA_CHECK(cudaGetFuncBySymbol(&function, stub));
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, stub));
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, put_words, kBlock, 0));
    REQUIRE_TRUE(function != nullptr && attributes.maxThreadsPerBlock >= 1 && blocks >= 1);

    CUDA_CHECK(cudaStreamDestroy(stream));
    CUDA_CHECK(cudaFree(data));
    CUDA_CHECK(cudaDeviceReset());
    // A new context means a new module.
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), kWords * sizeof(Word)));
    put_words<<<kGrid, kBlock>>>(data, 60);
    CUDA_CHECK_LAUNCH();
    expect(data, 60, "<<< >>> after a reset");
    CUDA_CHECK(cudaFree(data));
    return 0;
}
