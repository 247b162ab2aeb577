#include "tests/order/host_scene.h"

#include "tests/simcuda/control.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace order {

namespace {

using Counter = std::uint64_t (*)(const char*);

/// Null unless the shim decides which frees wait.
Counter counter() {
    static const Counter found = [] {
        const char* const options = std::getenv("CACHEALLOC_CONF");
        const bool decides = options != nullptr && std::strstr(options, "free:auto") != nullptr;
        return decides
                   ? reinterpret_cast<Counter>(dlsym(RTLD_DEFAULT, "cachealloc_test_host_waits"))
                   : nullptr;
    }();
    return found;
}

CUstream handle(cudaStream_t stream) {
    return stream;
}
CUdeviceptr address(const void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

// --- Copies.

void copy_runtime(Scene& s) {
    ORDER_CHECK(cudaMemcpyAsync(s.pinned, s.block, kBytes, cudaMemcpyDeviceToHost, s.stream));
}

void copy_driver(Scene& s) {
    ORDER_CHECK(cuMemcpyDtoHAsync(s.pinned, address(s.block), kBytes, handle(s.stream)));
}

void copy_inferred(Scene& s) {
    ORDER_CHECK(cuMemcpyAsync(address(s.pinned), address(s.block), kBytes, handle(s.stream)));
}

void copy_plane(Scene& s) {
    ORDER_CHECK(cudaMemcpy2DAsync(s.pinned, 1024, s.block, 1024, 1024, kBytes / 1024,
                                  cudaMemcpyDeviceToHost, s.stream));
}

void copy_unified_plane(Scene& s) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = address(s.block);
    copy.dstDevice = address(s.pinned);
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 1024;
    copy.Height = kBytes / 1024;
    ORDER_CHECK(cuMemcpy2DAsync(&copy, handle(s.stream)));
}

CUDA_MEMCPY3D volume(const Scene& s) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = address(s.block);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = s.pinned;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 1024;
    copy.srcHeight = copy.dstHeight = copy.Height = kBytes / 2048;
    copy.Depth = 2;
    return copy;
}

void copy_volume(Scene& s) {
    const CUDA_MEMCPY3D copy = volume(s);
    ORDER_CHECK(cuMemcpy3DAsync(&copy, handle(s.stream)));
}

void copy_batch(Scene& s) {
    CUdeviceptr targets[2] = {address(s.pinned), address(s.pinned) + kBytes / 2};
    CUdeviceptr sources[2] = {address(s.block), address(s.block) + kBytes / 2};
    std::size_t sizes[2] = {kBytes / 2, kBytes / 2};
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t first = 0;
    ORDER_CHECK(
        cuMemcpyBatchAsync(targets, sources, sizes, 2, &attributes, &first, 1, handle(s.stream)));
}

// --- Graphs. Each is launched behind the kernel that the stream holds already.

cudaGraphExec_t captured(void (*work)(Scene&), Scene& s) {
    cudaStream_t const own = std::exchange(s.stream, make_stream());
    ORDER_CHECK(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeRelaxed));
    work(s);
    cudaGraph_t graph = nullptr;
    ORDER_CHECK(cudaStreamEndCapture(s.stream, &graph));
    ORDER_CHECK(cudaStreamDestroy(s.stream));
    s.stream = own;
    cudaGraphExec_t made = nullptr;
    ORDER_CHECK(cudaGraphInstantiate(&made, graph, 0));
    ORDER_CHECK(cudaGraphDestroy(graph));
    return made;
}

void call_function(Scene& s) {
    s.by_function = true;
    s.called = 0;
    ORDER_CHECK(cudaLaunchHostFunc(
        s.stream, [](void* scene) { static_cast<Scene*>(scene)->called = kNew; }, &s));
}

void graph_copy(Scene& s) {
    ORDER_CHECK(cudaGraphLaunch(captured(copy_runtime, s), s.stream));
}

void graph_function(Scene& s) {
    ORDER_CHECK(cudaGraphLaunch(captured(call_function, s), s.stream));
}

void graph_in_graph(Scene& s) {
    CUgraph inner = nullptr;
    CUgraph outer = nullptr;
    CUgraphNode node = nullptr;
    CUcontext context = nullptr;
    ORDER_CHECK(cuCtxGetCurrent(&context));
    ORDER_CHECK(cuGraphCreate(&inner, 0));
    ORDER_CHECK(cuGraphCreate(&outer, 0));
    const CUDA_MEMCPY3D copy = volume(s);
    ORDER_CHECK(cuGraphAddMemcpyNode(&node, inner, nullptr, 0, &copy, context));
    ORDER_CHECK(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner));
    CUgraphExec made = nullptr;
    ORDER_CHECK(cuGraphInstantiate(&made, outer, 0));
    ORDER_CHECK(cuGraphLaunch(made, handle(s.stream)));
}

// --- Functions of the host.

void call_back(Scene& s) {
    s.by_function = true;
    s.called = 0;
    ORDER_CHECK(cudaStreamAddCallback(
        s.stream,
        [](cudaStream_t, cudaError_t, void* scene) { static_cast<Scene*>(scene)->called = kNew; },
        &s, 0));
}

constexpr HostWork kWorks[] = {
    {"copy_runtime", copy_runtime},
    {"copy_driver", copy_driver},
    {"copy_inferred", copy_inferred},
    {"copy_plane", copy_plane},
    {"copy_unified_plane", copy_unified_plane},
    {"copy_volume", copy_volume},
    {"copy_batch", copy_batch},
    {"graph_copy", graph_copy},
    {"graph_function", graph_function},
    {"graph_in_graph", graph_in_graph},
    {"call_function", call_function},
    {"call_back", call_back},
};
static_assert(std::size(kWorks) == kHostWorks);

} // namespace

std::uint64_t native_waits() {
    return counter() != nullptr ? counter()("native_waits") : 0;
}

std::uint64_t query_waits() {
    return counter() != nullptr ? counter()("query_waits") : 0;
}

bool not_ready(cudaError_t answer) {
    if (answer != cudaErrorNotReady) return false;
    cudaGetLastError(); // or the next launch would seem to have failed
    return true;
}

Scene::Scene(cudaStream_t on) : stream(on), block(allocate()), pinned(nullptr) {
    void* memory = nullptr;
    ORDER_CHECK(cudaMallocHost(&memory, kBytes));
    pinned = static_cast<Byte*>(memory);
}

Scene::~Scene() {
    drain();
    ORDER_CHECK(cudaFreeHost(pinned));
    release(block);
}

void Scene::compute(Byte value) {
    ORDER_CHECK(fill(stream, block, value, kBytes, kLateNs));
}

void Scene::free_something() {
    release(allocate(std::size_t{1} << 16));
}

void Scene::look(Byte value) {
    if (by_function) {
        ORDER_REQUIRE(called == value, kWrongContent);
        return;
    }
    simcuda::control::host_access(pinned, kBytes, false);
    ORDER_REQUIRE(pinned[0] == value && pinned[kBytes - 1] == value, kWrongContent);
}

const HostWork& host_work(std::size_t index) {
    return kWorks[index];
}

} // namespace order
