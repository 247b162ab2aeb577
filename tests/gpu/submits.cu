// Submits work in every way that the runtime and the driver API have, and checks what came of it. A
// test counts what reached the driver; built with the per-thread default stream it uses the other
// set of entry points.
//
// stdout: one line per way, the same wherever it runs; status 1 if a way wrote something wrong.
// stderr: what this CUDA does not have.
#include "tests/gpu/late_ways.cuh"

#include <atomic>

namespace {

using late::check;

constexpr std::size_t kBytes = 4096;
int failures = 0;

void judge(const char* what, const char* where, bool right) {
    std::printf("%-26s %-12s: %s\n", what, where, right ? "right" : "WRONG");
    failures += right ? 0 : 1;
}

// Everything is done; whether the buffer holds what every way writes.
bool written(unsigned char* data) {
    std::vector<unsigned char> host(kBytes);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaMemcpy(host.data(), data, kBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaMemset(data, late::kBefore, kBytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (unsigned char byte : host) {
        if (byte != late::kAfter) return false;
    }
    return true;
}

void every_way_of_writing(const late::Tools& tools, unsigned char* data) {
    using late::Place;
    for (const late::Operation& operation : late::all_operations()) {
        for (Place place : {Place::legacy, Place::blocking, Place::non_blocking, Place::fresh,
                            Place::per_thread, Place::other_thread}) {
            if (place == Place::legacy && !operation.legacy_allowed) continue;
            if (place != Place::legacy && !operation.on_stream) continue;
            cudaError_t status = cudaSuccess;
            late::at(tools, place, [&](cudaStream_t stream) {
                status = operation.write(tools, data, kBytes, stream);
            });
            if (status != cudaSuccess) {
                (void)cudaGetLastError();
                std::fprintf(stderr, "submits: left out: %s (%s)\n", operation.name,
                             cudaGetErrorName(status));
                break;
            }
            judge(operation.name, operation.on_stream ? late::name_of(place) : "", written(data));
        }
    }
}

// The driver's own launches, as cuBLAS, CUTLASS and Triton do them.
void driver_launches(const late::Tools& tools, unsigned char* data) {
    cudaFunction_t function = nullptr;
    check(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(&write_bytes)),
          "cudaGetFuncBySymbol");
    const auto launch = late::driver_entry<decltype(&cuLaunchKernel)>("cuLaunchKernel");
    const auto launch_ex = late::driver_entry<decltype(&cuLaunchKernelEx)>("cuLaunchKernelEx");
    const auto cooperative =
        late::driver_entry<decltype(&cuLaunchCooperativeKernel)>("cuLaunchCooperativeKernel");
    std::size_t bytes = kBytes;
    void* arguments[] = {&data, &bytes};
    for (cudaStream_t stream : {cudaStreamLegacy, tools.other}) {
        const char* const where = stream == tools.other ? "non-blocking" : "legacy";
        const auto launched = [&](const char* what, CUresult status) {
            judge(what, where, status == CUDA_SUCCESS && written(data));
        };
        launched("cuLaunchKernel", launch(function, late::kGrid, 1, 1, late::kBlock, 1, 1, 0,
                                          stream, arguments, nullptr));
        CUlaunchConfig config{};
        config.gridDimX = late::kGrid;
        config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = late::kBlock;
        config.blockDimY = config.blockDimZ = 1;
        config.hStream = stream;
        launched("cuLaunchKernelEx", launch_ex(&config, function, arguments, nullptr));
        CUlaunchAttribute attribute{};
        attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute.value.cooperative = 1;
        config.attrs = &attribute;
        config.numAttrs = 1;
        launched("cuLaunchKernelEx, cooperative", launch_ex(&config, function, arguments, nullptr));
        launched("cuLaunchCooperativeKernel", cooperative(function, late::kGrid, 1, 1, late::kBlock,
                                                          1, 1, 0, stream, arguments));
    }
}

std::atomic<int> called{0};

void host_functions(const late::Tools& tools) {
    const auto function = [](void*) { called += 1; };
    const auto callback = [](cudaStream_t, cudaError_t, void*) { called += 1; };
    check(cudaLaunchHostFunc(tools.other, function, nullptr), "cudaLaunchHostFunc");
    check(cudaLaunchHostFunc(cudaStreamPerThread, function, nullptr), "cudaLaunchHostFunc");
    check(cudaStreamAddCallback(tools.other, callback, nullptr, 0), "cudaStreamAddCallback");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    judge("host functions", "", called == 3);
}

// Copies back to the host, each of what the call before has written.
void copies_back(const late::Tools& tools, unsigned char* data) {
    unsigned char* host = nullptr;
    check(cudaMallocHost(&host, kBytes), "cudaMallocHost");
    for (cudaStream_t stream : {cudaStreamLegacy, tools.blocking, tools.other,
                                static_cast<cudaStream_t>(cudaStreamPerThread)}) {
        std::memset(host, 0, kBytes);
        check(cudaMemsetAsync(data, late::kAfter, kBytes, stream), "cudaMemsetAsync");
        check(cudaMemcpyAsync(host, data, kBytes, cudaMemcpyDeviceToHost, stream), "copy back");
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        judge("copy back", "", host[0] == late::kAfter && host[kBytes - 1] == late::kAfter);
    }
    check(cudaFreeHost(host), "cudaFreeHost");
}

// A captured graph, uploaded and launched twice.
void captured_graph(const late::Tools& tools, unsigned char* data) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(tools.other, cudaStreamCaptureModeGlobal), "begin capture");
    check(cudaMemsetAsync(data, 0, kBytes, tools.other), "cudaMemsetAsync");
    write_bytes<<<late::kGrid, late::kBlock, 0, tools.other>>>(data, kBytes);
    check(cudaGetLastError(), "launch");
    check(cudaStreamEndCapture(tools.other, &graph), "end capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(executable, tools.other), "cudaGraphUpload");
    for (cudaStream_t stream : {tools.other, tools.blocking}) {
        check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
        judge("captured graph", "", written(data));
    }
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

} // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP submits: no GPU");
        return 77;
    }
    const late::Tools tools(kBytes);
    unsigned char* data = nullptr;
    check(cudaMalloc(&data, kBytes), "cudaMalloc");
    check(cudaMemset(data, late::kBefore, kBytes), "cudaMemset");
    every_way_of_writing(tools, data);
    driver_launches(tools, data);
    host_functions(tools);
    copies_back(tools, data);
    captured_graph(tools, data);
    check(cudaFree(data), "cudaFree");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return failures == 0 ? 0 : 1;
}
