// Devices, streams, events, pools and handles of the simulated runtime.
#include "tests/simcuda/runtime/runtime_fixture.h"

#include <cstring>
#include <thread>
#include <vector>

TEST_CASE("devices: each thread starts with the first, memory belongs to the chosen one") {
    int count = 0;
    REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
    REQUIRE(count >= 2); // The test's setting.
    Buffer first(1000);
    std::vector<char> pattern(1000, 42);
    std::vector<char> back(1000);
    REQUIRE(cudaMemcpy(first.address, pattern.data(), 1000, cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    {
        Buffer second(1000);
        cudaPointerAttributes attributes{};
        CHECK(cudaPointerGetAttributes(&attributes, second.address) == cudaSuccess);
        CHECK(attributes.device == 1);
        int beside = -1;
        std::thread([&] { cudaGetDevice(&beside); }).join();
        CHECK(beside == 0);

        int can = 0;
        CHECK(cudaDeviceCanAccessPeer(&can, 1, 0) == cudaSuccess);
        CHECK(can == 1);
        CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
        CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
        CHECK(cudaGetLastError() == cudaErrorPeerAccessAlreadyEnabled);
        CHECK(cudaMemcpyPeer(second.address, 1, first.address, 0, 1000) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(cudaMemcpy(back.data(), second.address, 1000, cudaMemcpyDeviceToHost) == cudaSuccess);
        CHECK(back == pattern);
        CHECK(cudaDeviceDisablePeerAccess(0) == cudaSuccess);
    }
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 1);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("host functions and callbacks run in stream order with what they were given") {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    struct Seen {
        std::vector<int> order;
        cudaStream_t stream = nullptr;
        cudaError_t status = cudaErrorUnknown;
    } seen;
    CHECK(cudaLaunchHostFunc(
              stream, [](void* data) { static_cast<Seen*>(data)->order.push_back(1); }, &seen) ==
          cudaSuccess);
    CHECK(cudaStreamAddCallback(
              stream,
              [](cudaStream_t where, cudaError_t status, void* data) {
                  auto* out = static_cast<Seen*>(data);
                  out->order.push_back(2);
                  out->stream = where;
                  out->status = status;
              },
              &seen, 0) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(seen.order == std::vector<int>{1, 2});
    CHECK(seen.stream == stream);
    CHECK(seen.status == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("streams and events keep what they were made with") {
    cudaStream_t stream = nullptr;
    unsigned flags = 0;
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
    CHECK(cudaStreamGetFlags(stream, &flags) == cudaSuccess);
    CHECK(flags == cudaStreamNonBlocking);
    cudaEvent_t start = nullptr;
    cudaEvent_t end = nullptr;
    CHECK(cudaEventCreate(&start) == cudaSuccess);
    CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault) == cudaSuccess);
    CHECK(cudaEventRecord(start, stream) == cudaSuccess);
    CHECK(cudaEventRecord(end, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(nullptr, end, 0) == cudaSuccess);
    CHECK(cudaEventSynchronize(end) == cudaSuccess);
    CHECK(cudaEventQuery(end) == cudaSuccess);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, start, end) == cudaSuccess);
    CHECK(ms >= 0);
    CHECK(cudaEventDestroy(start) == cudaSuccess);
    CHECK(cudaEventDestroy(end) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("the default pool and its attributes") {
    cudaMemPool_t pool = nullptr;
    cudaMemPool_t current = nullptr;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
    CHECK(cudaDeviceGetMemPool(&current, 0) == cudaSuccess);
    CHECK(pool == current);
    cuuint64_t threshold = 123456789;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) ==
          cudaSuccess);
    threshold = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) ==
          cudaSuccess);
    CHECK(threshold == 123456789);
    threshold = 0;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) ==
          cudaSuccess);
}

TEST_CASE("memory between processes: the handle names its allocation") {
    Buffer buffer(4096);
    cudaIpcMemHandle_t handle{};
    CHECK(cudaIpcGetMemHandle(&handle, buffer.address) == cudaSuccess);
    cudaIpcMemHandle_t empty{};
    CHECK(std::memcmp(&handle, &empty, sizeof handle) != 0);
    CHECK(cudaIpcGetMemHandle(&handle, &host_object) == cudaErrorInvalidValue);
    cudaGetLastError();
}
