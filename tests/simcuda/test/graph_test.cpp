// Graphs: what they run, how their accesses are ordered, how captures spread into them.
#include "fixture.h"

using namespace simtest;

namespace {

constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;

} // namespace

TEST_CASE("a graph runs what was captured, each time it is launched") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream s = stream();
    const CUstream side = stream();
    const CUevent fork = event();
    const CUevent joined = event();
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    REQUIRE(launch_fill(s, p, 64, 1, 1000) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(fork, s) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(side, fork, 0) == CUDA_SUCCESS);
    CUstreamCaptureStatus status{};
    REQUIRE(cuStreamIsCapturing(side, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(launch_sum(side, p + 1024, p, 64, 5000) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(joined, side) == CUDA_SUCCESS);
    CUgraph g = nullptr;
    SECTION("unjoined") {
        CHECK(cuStreamEndCapture(s, &g) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    SECTION("joined") {
        REQUIRE(cuStreamWaitEvent(s, joined, 0) == CUDA_SUCCESS);
        REQUIRE(launch_fill(s, p, 64, 2, 1000) == CUDA_SUCCESS);
        REQUIRE(cuStreamEndCapture(s, &g) == CUDA_SUCCESS);
        std::size_t nodes = 0;
        REQUIRE(cuGraphGetNodes(g, nullptr, &nodes) == CUDA_SUCCESS);
        CHECK(nodes == 3);
        CUgraphExec exec = nullptr;
        REQUIRE(cuGraphInstantiate(&exec, g, 0) == CUDA_SUCCESS);
        REQUIRE(cuGraphDestroy(g) == CUDA_SUCCESS);
        for (int i = 0; i < 3; ++i) {
            REQUIRE(cuMemsetD8Async(p, 0, 4096, s) == CUDA_SUCCESS);
            REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
            REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
            unsigned sum = 0;
            REQUIRE(cuMemcpyDtoH(&sum, p + 1024, 4) == CUDA_SUCCESS);
            CHECK(sum == 64);
            unsigned char byte = 0;
            REQUIRE(cuMemcpyDtoH(&byte, p, 1) == CUDA_SUCCESS);
            CHECK(byte == 2);
        }
        CHECK(control::races() == 0);
        SECTION("its accesses race like others") {
            REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
            REQUIRE(cuMemsetD8Async(p, 0, 64, stream()) == CUDA_SUCCESS);
            REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
            CHECK(control::races() > 0);
        }
        SECTION("a context wait holds it up") {
            REQUIRE(launch_sum(side, p + 2048, p, 64, 200 * kMs) == CUDA_SUCCESS);
            const CUevent e = event();
            REQUIRE(cuCtxRecordEvent(device.ctx(), e) == CUDA_SUCCESS);
            REQUIRE(cuCtxWaitEvent(device.ctx(), e) == CUDA_SUCCESS);
            REQUIRE(cuGraphLaunch(exec, stream()) == CUDA_SUCCESS);
            REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
            CHECK(control::races() == 0);
        }
        REQUIRE(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    }
}

TEST_CASE("branches of one graph race with each other") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream s = stream();
    const CUstream side = stream();
    const CUevent fork = event();
    const CUevent joined = event();
    const bool same = GENERATE(false, true);
    const bool ordered = GENERATE(false, true);
    CAPTURE(same, ordered);
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    REQUIRE(launch_fill(s, p, 64, 1, 1000) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(fork, s) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(side, fork, 0) == CUDA_SUCCESS);
    REQUIRE(launch_fill(side, p, 64, 2, 1000) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(joined, side) == CUDA_SUCCESS);
    if (ordered) {
        REQUIRE(cuStreamWaitEvent(s, joined, 0) == CUDA_SUCCESS);
    }
    REQUIRE(launch_fill(s, same ? p : p + 64, 64, 3, 1000) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(s, joined, 0) == CUDA_SUCCESS);
    CUgraph g = nullptr;
    REQUIRE(cuStreamEndCapture(s, &g) == CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    REQUIRE(cuGraphInstantiate(&exec, g, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
    // What follows on the stream comes behind every branch.
    REQUIRE(launch_fill(s, p, 128, 4, 1000) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == (same && !ordered ? 1 : 0));
    REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == (same && !ordered ? 2 : 0));
    REQUIRE(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    REQUIRE(cuGraphDestroy(g) == CUDA_SUCCESS);
}

TEST_CASE("capture into a graph that exists") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream s = stream();
    CUgraph g = nullptr;
    REQUIRE(cuGraphCreate(&g, 0) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCaptureToGraph(s, g, nullptr, nullptr, 0, kGlobal) == CUDA_SUCCESS);
    REQUIRE(launch_fill(s, p, 64, 7, 1000) == CUDA_SUCCESS);
    CUgraph same = nullptr;
    REQUIRE(cuStreamEndCapture(s, &same) == CUDA_SUCCESS);
    CHECK(same == g);
    CUgraphExec exec = nullptr;
    REQUIRE(cuGraphInstantiate(&exec, g, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(s) == CUDA_SUCCESS);
    unsigned char byte = 0;
    REQUIRE(cuMemcpyDtoH(&byte, p, 1) == CUDA_SUCCESS);
    CHECK(byte == 7);
}

TEST_CASE("a graph built node by node") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    CUgraph g = nullptr;
    REQUIRE(cuGraphCreate(&g, 0) == CUDA_SUCCESS);
    CUdeviceptr out = p + 1024;
    unsigned bytes = 64;
    std::uint64_t ns = 1000;
    void* args[] = {&out, const_cast<CUdeviceptr*>(&p), &bytes, &ns};
    CUDA_KERNEL_NODE_PARAMS kernel_params{};
    kernel_params.func = kernel("sum");
    kernel_params.gridDimX = kernel_params.gridDimY = kernel_params.gridDimZ = 1;
    kernel_params.blockDimX = kernel_params.blockDimY = kernel_params.blockDimZ = 1;
    kernel_params.kernelParams = args;
    CUgraphNode reads = nullptr;
    REQUIRE(cuGraphAddKernelNode(&reads, g, nullptr, 0, &kernel_params) == CUDA_SUCCESS);
    CUDA_MEMSET_NODE_PARAMS fill_params{};
    fill_params.dst = p;
    fill_params.value = 2;
    fill_params.elementSize = 1;
    fill_params.width = 64;
    fill_params.height = 1;
    CUgraphNode writes = nullptr;
    REQUIRE(cuGraphAddMemsetNode(&writes, g, nullptr, 0, &fill_params, device.ctx()) ==
            CUDA_SUCCESS);
    REQUIRE(cuGraphAddDependencies(g, &writes, &reads, nullptr, 1) == CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    REQUIRE(cuGraphInstantiate(&exec, g, 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(exec, stream()) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    unsigned sum = 0;
    REQUIRE(cuMemcpyDtoH(&sum, out, 4) == CUDA_SUCCESS);
    CHECK(sum == 128);
    REQUIRE(cuGraphAddDependencies(g, &reads, &writes, nullptr, 1) == CUDA_SUCCESS);
    CHECK(cuGraphInstantiate(&exec, g, 0) == CUDA_ERROR_INVALID_VALUE);
}
