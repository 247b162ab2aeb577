// Memory freed while queued work still uses it, and given out again.
#include "tests/contract/contract.h"

#include <thread>

using namespace contract;

TEST_CASE("an event query right after cudaFree", "[order]") {
    Device device;
    Kernels kernels;
    Stream stream;
    const bool used = GENERATE(true, false); // whether the work used what is freed
    void* const memory = allocate(64 * kKiB);
    void* const result = allocate(64 * kKiB);
    void* const other = allocate(64 * kKiB);
    fill(memory, 64 * kKiB, 1);
    fill(other, 64 * kKiB, 2);
    cudaEvent_t event = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    kernels.late_copy(result, used ? memory : other, 64 * kKiB, 20, stream);
    REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
    REQUIRE(cudaFree(memory) == cudaSuccess);
    const cudaError_t ready = cudaEventQuery(event);
    if (free_waits()) {
        CHECK(ready == cudaSuccess);
        CHECK(cudaStreamQuery(stream) == cudaSuccess);
    } else {
        CHECK((ready == cudaSuccess || ready == cudaErrorNotReady));
        cudaGetLastError();
    }
    REQUIRE(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(holds(result, 64 * kKiB, used ? 1 : 2));
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaFree(result) == cudaSuccess);
    CHECK(cudaFree(other) == cudaSuccess);
}

namespace {

enum class Free { runtime, driver, async_on_reader, another_thread };
enum class Write { copy_from_host, set, set_on_stream, kernel_on_stream };

void free_as(Free how, void* memory, cudaStream_t reader) {
    cudaError_t code = cudaErrorUnknown;
    switch (how) {
    case Free::runtime:
        code = cudaFree(memory);
        break;
    case Free::driver:
        code = cuMemFree(address(memory)) == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
        break;
    case Free::async_on_reader:
        code = cudaFreeAsync(memory, reader);
        break;
    case Free::another_thread:
        std::thread([&] { code = cudaFree(memory); }).join();
        break;
    }
    REQUIRE(code == cudaSuccess);
}

} // namespace

// The next owner writes at once, on another stream or none, while the late reader is on its way.
TEST_CASE("queued kernels, then a free, then the memory's next owner", "[order]") {
    Device device;
    Kernels kernels;
    Stream reader;
    Stream writer;
    const std::size_t bytes = GENERATE(as<std::size_t>{}, 4 * kKiB, 256 * kKiB, 3 * kMiB);
    const Free how =
        GENERATE(Free::runtime, Free::driver, Free::another_thread, Free::async_on_reader);
    const Write write =
        GENERATE(Write::copy_from_host, Write::set, Write::set_on_stream, Write::kernel_on_stream);
    CAPTURE(bytes, static_cast<int>(how), static_cast<int>(write));
    void* const result = allocate(bytes);
    void* const source = allocate(bytes);
    fill(source, bytes, 900);
    const bool async = how == Free::async_on_reader;
    for (std::uint32_t round = 0; round < 3; ++round) {
        void* memory = nullptr;
        if (async) {
            REQUIRE(cudaMallocAsync(&memory, bytes, reader) == cudaSuccess);
            REQUIRE(cudaStreamSynchronize(reader) == cudaSuccess);
        } else {
            memory = allocate(bytes);
        }
        fill(memory, bytes, round);
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        kernels.late_copy(result, memory, bytes, 10, reader);
        free_as(how, memory, reader);
        // Several, so that the freed address is among them whatever the allocator prefers.
        std::vector<void*> next;
        for (int i = 0; i < 4; ++i) {
            next.push_back(allocate(bytes));
            switch (write) {
            case Write::copy_from_host:
                fill(next.back(), bytes, 500);
                break;
            case Write::set:
                REQUIRE(cudaMemset(next.back(), 0xEE, bytes) == cudaSuccess);
                break;
            case Write::set_on_stream:
                REQUIRE(cudaMemsetAsync(next.back(), 0xEE, bytes, writer) == cudaSuccess);
                break;
            case Write::kernel_on_stream:
                kernels.late_copy(next.back(), source, bytes, 0, writer);
                break;
            }
        }
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        REQUIRE(holds(result, bytes, round));
        if (write == Write::kernel_on_stream) REQUIRE(holds(next.back(), bytes, 900));
        if (write == Write::copy_from_host) REQUIRE(holds(next.back(), bytes, 500));
        for (void* const one : next)
            REQUIRE(cudaFree(one) == cudaSuccess);
    }
    CHECK(cudaFree(result) == cudaSuccess);
    CHECK(cudaFree(source) == cudaSuccess);
}

// The freed memory is needed at once and there is no other: whoever gets it waits, and nothing
// else.
ALONE_TEST_CASE("the whole device freed behind queued work", "[order][info]") {
    Device device;
    Kernels kernels;
    Stream reader;
    void* const result = allocate(kMiB);
    const std::size_t most = free_memory() / 4 * 3;
    for (std::uint32_t round = 0; round < 4; ++round) {
        void* const memory = allocate(most);
        fill(memory, kMiB, round);
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        kernels.late_copy(result, memory, kMiB, 10, reader);
        REQUIRE(cudaFree(memory) == cudaSuccess);
        void* const next = allocate(most);
        REQUIRE(cudaMemset(next, 0xEE, kMiB) == cudaSuccess);
        REQUIRE(cudaFree(next) == cudaSuccess);
        REQUIRE(cudaStreamSynchronize(reader) == cudaSuccess);
        CHECK(holds(result, kMiB, round));
    }
    CHECK(cudaFree(result) == cudaSuccess);
}
