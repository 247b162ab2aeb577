// What nodes of graphs say of themselves, what they can be changed to, and nodes that run graphs or
// touch events.
#include "fixture.h"

using namespace simtest;

namespace {

constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::vector<CUgraphNode> nodes_of(CUgraph g) {
    std::size_t count = 0;
    REQUIRE(cuGraphGetNodes(g, nullptr, &count) == CUDA_SUCCESS);
    std::vector<CUgraphNode> nodes(count);
    REQUIRE(cuGraphGetNodes(g, nodes.data(), &count) == CUDA_SUCCESS);
    return nodes;
}

CUgraphNodeType type_of(CUgraphNode node) {
    CUgraphNodeType type{};
    REQUIRE(cuGraphNodeGetType(node, &type) == CUDA_SUCCESS);
    return type;
}

CUgraph end(CUstream s) {
    CUgraph g = nullptr;
    REQUIRE(cuStreamEndCapture(s, &g) == CUDA_SUCCESS);
    return g;
}

CUgraphExec instantiate(CUgraph g) {
    CUgraphExec exec = nullptr;
    REQUIRE(cuGraphInstantiate(&exec, g, 0) == CUDA_SUCCESS);
    return exec;
}

void run(CUgraphExec exec) {
    REQUIRE(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
}

void count_up(void* counter) {
    ++*static_cast<int*>(counter);
}

unsigned char byte_at(CUdeviceptr p) {
    unsigned char byte = 0;
    REQUIRE(cuMemcpyDtoH(&byte, p, 1) == CUDA_SUCCESS);
    return byte;
}

} // namespace

TEST_CASE("a captured copy and a captured host function tell what they do") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    void* pinned = nullptr;
    REQUIRE(cuMemAllocHost(&pinned, 4096) == CUDA_SUCCESS);
    std::vector<char> pageable(4096);
    int calls = 0;
    const CUstream s = stream();
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoHAsync(pinned, p, 100, s) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoDAsync(p + 1024, p, 200, s) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoDAsync(p, pageable.data(), 300, s) == CUDA_SUCCESS);
    REQUIRE(cuLaunchHostFunc(s, count_up, &calls) == CUDA_SUCCESS);
    const auto nodes = nodes_of(end(s));
    REQUIRE(nodes.size() == 4);
    struct Want {
        CUmemorytype to, from;
        std::size_t bytes;
    };
    const Want wanted[] = {{CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, 100},
                           {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE, 200},
                           {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, 300}};
    for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE(type_of(nodes[i]) == CU_GRAPH_NODE_TYPE_MEMCPY);
        CUDA_MEMCPY3D c{};
        REQUIRE(cuGraphMemcpyNodeGetParams(nodes[i], &c) == CUDA_SUCCESS);
        CHECK(c.dstMemoryType == wanted[i].to);
        CHECK(c.srcMemoryType == wanted[i].from);
        CHECK(c.WidthInBytes == wanted[i].bytes);
        CHECK(c.Height * c.Depth == 1);
    }
    REQUIRE(type_of(nodes[3]) == CU_GRAPH_NODE_TYPE_HOST);
    CUDA_HOST_NODE_PARAMS h{};
    REQUIRE(cuGraphHostNodeGetParams(nodes[3], &h) == CUDA_SUCCESS);
    CHECK(h.fn == count_up);
    CHECK(h.userData == &calls);
    CHECK(cuGraphHostNodeGetParams(nodes[0], &h) == CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D c{};
    CHECK(cuGraphMemcpyNodeGetParams(nodes[3], &c) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFreeHost(pinned) == CUDA_SUCCESS);
}

TEST_CASE("nodes of an executable graph can be changed, and only there") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    REQUIRE(cuMemsetD8(p, 1, 1024) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8(p + 1024, 2, 1024) == CUDA_SUCCESS);
    int first = 0;
    int second = 0;
    const CUstream s = stream();
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoDAsync(p + 2048, p, 64, s) == CUDA_SUCCESS);
    REQUIRE(cuLaunchHostFunc(s, count_up, &first) == CUDA_SUCCESS);
    const CUgraph g = end(s);
    const auto nodes = nodes_of(g);
    const CUgraphExec exec = instantiate(g);
    run(exec);
    CHECK(byte_at(p + 2048) == 1);
    CUDA_MEMCPY3D c{};
    REQUIRE(cuGraphMemcpyNodeGetParams(nodes[0], &c) == CUDA_SUCCESS);
    c.srcDevice = p + 1024;
    REQUIRE(cuGraphExecMemcpyNodeSetParams(exec, nodes[0], &c, device.ctx()) == CUDA_SUCCESS);
    const CUDA_HOST_NODE_PARAMS h{count_up, &second};
    REQUIRE(cuGraphExecHostNodeSetParams(exec, nodes[1], &h) == CUDA_SUCCESS);
    run(exec);
    CHECK(byte_at(p + 2048) == 2);
    CHECK(first == 1);
    CHECK(second == 1);
    run(instantiate(g));
    CHECK(byte_at(p + 2048) == 1);
    CHECK(first == 2);
    REQUIRE(cuGraphMemcpyNodeSetParams(nodes[0], &c) == CUDA_SUCCESS);
    run(instantiate(g));
    CHECK(byte_at(p + 2048) == 2);
    CHECK(cuGraphExecHostNodeSetParams(exec, nodes[0], &h) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an executable graph takes the parameters of another graph of the same shape") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream s = stream();
    const auto capture = [&](unsigned char value, bool copy) {
        REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
        REQUIRE((copy ? cuMemcpyDtoDAsync(p, p + 1024, 64, s) : cuMemsetD8Async(p, value, 64, s)) ==
                CUDA_SUCCESS);
        return end(s);
    };
    const CUgraphExec exec = instantiate(capture(3, false));
    CUgraphExecUpdateResultInfo info{};
    REQUIRE(cuGraphExecUpdate(exec, capture(4, false), &info) == CUDA_SUCCESS);
    run(exec);
    CHECK(byte_at(p) == 4);
    CHECK(cuGraphExecUpdate(exec, capture(5, true), &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
}

TEST_CASE("a graph inside a graph is one node that runs a copy of it") {
    Device device;
    const CUdeviceptr p = alloc(4096);
    const CUstream s = stream();
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    REQUIRE(launch_fill(s, p, 64, 7, 1000) == CUDA_SUCCESS);
    REQUIRE(launch_sum(s, p + 1024, p, 64, 1000) == CUDA_SUCCESS);
    const CUgraph inner = end(s);
    CUgraph outer = nullptr;
    const bool captured = GENERATE(false, true);
    if (captured) {
        const CUgraphExec exec = instantiate(inner);
        REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD8Async(p, 0, 2048, s) == CUDA_SUCCESS);
        REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
        outer = end(s);
    } else {
        REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD8Async(p, 0, 2048, s) == CUDA_SUCCESS);
        outer = end(s);
        const CUgraphNode clear = nodes_of(outer)[0];
        CUgraphNode node = nullptr;
        REQUIRE(cuGraphAddChildGraphNode(&node, outer, &clear, 1, inner) == CUDA_SUCCESS);
    }
    const auto nodes = nodes_of(outer);
    REQUIRE(nodes.size() == 2);
    REQUIRE(type_of(nodes[1]) == CU_GRAPH_NODE_TYPE_GRAPH);
    CUgraph copy = nullptr;
    REQUIRE(cuGraphChildGraphNodeGetGraph(nodes[1], &copy) == CUDA_SUCCESS);
    CHECK(nodes_of(copy).size() == 2);
    CHECK(copy != inner);
    // What comes behind the node comes behind all of the graph in it.
    CUDA_MEMSET_NODE_PARAMS m{};
    m.dst = p;
    m.value = 9;
    m.elementSize = 1;
    m.width = 64;
    m.height = 1;
    CUgraphNode last = nullptr;
    REQUIRE(cuGraphAddMemsetNode(&last, outer, &nodes[1], 1, &m, device.ctx()) == CUDA_SUCCESS);
    run(instantiate(outer));
    unsigned sum = 0;
    REQUIRE(cuMemcpyDtoH(&sum, p + 1024, 4) == CUDA_SUCCESS);
    CHECK(sum == 7 * 64);
    CHECK(byte_at(p) == 9);
    CHECK(control::races() == 0);
}

TEST_CASE("a graph records events and waits for them at each launch") {
    Device device;
    const CUdeviceptr p = alloc(1 << 20);
    const CUstream s = stream();
    const CUstream other = stream();
    const CUevent e = event();
    const bool waits = GENERATE(false, true);
    const bool with_nodes = GENERATE(false, true);
    CAPTURE(waits, with_nodes);
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    if (waits && with_nodes) {
        REQUIRE(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL) == CUDA_SUCCESS);
    }
    REQUIRE(launch_fill(s, p, 4096, 1, 1000) == CUDA_SUCCESS);
    if (!waits && with_nodes) {
        REQUIRE(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL) == CUDA_SUCCESS);
    }
    const CUgraphExec exec = instantiate(end(s));
    if (waits) {
        REQUIRE(launch_sum(other, p + 8192, p, 4096, 100 * kMs) == CUDA_SUCCESS);
        REQUIRE(cuEventRecord(e, other) == CUDA_SUCCESS);
        REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
    } else {
        REQUIRE(cuGraphLaunch(exec, s) == CUDA_SUCCESS);
        REQUIRE(cuStreamWaitEvent(other, e, 0) == CUDA_SUCCESS);
        REQUIRE(launch_sum(other, p + 8192, p, 4096, 1000) == CUDA_SUCCESS);
    }
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(control::races() == (with_nodes ? 0 : 1));
}

TEST_CASE("stream-ordered allocation inside a capture becomes nodes") {
    Device device;
    const CUstream s = stream();
    REQUIRE(cuStreamBeginCapture(s, kGlobal) == CUDA_SUCCESS);
    CUdeviceptr p = 0;
    REQUIRE(cuMemAllocAsync(&p, 4096, s) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(p, 1, 4096, s) == CUDA_SUCCESS);
    REQUIRE(cuMemFreeAsync(p, s) == CUDA_SUCCESS);
    const CUgraph g = end(s);
    const auto nodes = nodes_of(g);
    REQUIRE(nodes.size() == 3);
    CHECK(type_of(nodes[0]) == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    CHECK(type_of(nodes[1]) == CU_GRAPH_NODE_TYPE_MEMSET);
    CHECK(type_of(nodes[2]) == CU_GRAPH_NODE_TYPE_MEM_FREE);
    const CUgraphExec exec = instantiate(g);
    run(exec);
    run(exec);
    REQUIRE(cuGraphDestroy(g) == CUDA_SUCCESS);
    run(exec);
    REQUIRE(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CUdeviceptr base = 0;
    CHECK(cuMemGetAddressRange(&base, nullptr, p) == CUDA_ERROR_NOT_FOUND);
    CHECK(control::errors() == 0);
    CHECK(control::races() == 0);
}
