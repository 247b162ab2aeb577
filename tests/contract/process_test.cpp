// The ends of processes: fork, exit, and a context that a fault has killed.
#include "tests/contract/contract.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

using namespace contract;

namespace {

// Runs `child` in a forked process. Its exit status, or 1000 + the signal that ended it.
template <class Child>
int in_forked_child(Child child) {
    std::fflush(nullptr); // what is buffered must not be written twice
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        alarm(30);
        child();
        _exit(99);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

// What outlives main(): frees its memory in a destructor of static storage duration.
struct FreedAtExit {
    std::vector<void*> all;
    ~FreedAtExit() {
        if (all.empty()) return;
        measured("cudaFree in a static destructor", cudaFree(all.front()));
        void* memory = nullptr;
        measured("cudaMalloc in a static destructor", cudaMalloc(&memory, 4096));
        for (std::size_t i = 1; i < all.size(); ++i)
            cudaFree(all[i]);
        cuMemFree(address(all.front()));
    }
} freed_at_exit;

void* held_for_handler = nullptr;

} // namespace

ALONE_TEST_CASE("a forked child asks CUDA and fails, the parent goes on", "[fork]") {
    Device device;
    void* const memory = allocate(50000);
    void* const freed = allocate(50000);
    fill(memory, 50000, 1);
    REQUIRE(cudaFree(freed) == cudaSuccess);
    const int asked = in_forked_child([&] {
        CUdeviceptr other = 0;
        const CUresult allocated = cuMemAlloc(&other, 50000);
        const CUresult of_parent = cuMemFree(address(memory));
        std::size_t free_bytes = 0;
        const CUresult info = cuMemGetInfo(&free_bytes, nullptr);
        measured("cuMemAlloc in a forked child", allocated);
        measured("cuMemFree in a forked child", of_parent);
        measured("cuMemGetInfo in a forked child", info);
        _exit(allocated == CUDA_ERROR_NOT_INITIALIZED && of_parent == CUDA_ERROR_NOT_INITIALIZED &&
                      info == CUDA_ERROR_NOT_INITIALIZED
                  ? 5
                  : 6);
    });
    CHECK(asked == 5);
    const int through_runtime = in_forked_child([&] {
        void* other = nullptr;
        const cudaError_t allocated = cudaMalloc(&other, 50000);
        const cudaError_t of_parent = cudaFree(memory);
        measured("cudaMalloc in a forked child", allocated);
        measured("cudaFree in a forked child", of_parent);
        _exit(allocated != cudaSuccess && of_parent != cudaSuccess ? 5 : 6);
    });
    CHECK(through_runtime == 5);
    CHECK(in_forked_child([] { std::exit(7); }) == 7);
    CHECK(holds(memory, 50000, 1));
    void* const next = allocate(50000);
    fill(next, 50000, 2);
    CHECK(holds(next, 50000, 2));
    CHECK(cudaFree(next) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
}

ALONE_TEST_CASE("forks beside threads that allocate", "[fork][threads]") {
    Device device;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            while (!stop) {
                void* memory = nullptr;
                wrong += cudaMalloc(&memory, 30000) != cudaSuccess;
                wrong += cudaFree(memory) != cudaSuccess;
            }
        });
    }
    for (int round = 0; round < 15; ++round) {
        const int status = in_forked_child([] {
            // Whoever held a lock is not in this process: only the simulated driver is known not to
            // mind.
            CUdeviceptr memory = 0;
            if (simcuda::control::simulated()) {
                _exit(cuMemAlloc(&memory, 4096) == CUDA_ERROR_NOT_INITIALIZED ? 3 : 4);
            }
            _exit(3);
        });
        CHECK(status == 3);
    }
    stop = true;
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}

ALONE_TEST_CASE("a process ends with live and with freed memory", "[exit]") {
    Device device;
    for (int i = 0; i < 20; ++i)
        freed_at_exit.all.push_back(allocate(i % 2 == 0 ? 9000 : 3 * kMiB));
    for (int i = 0; i < 5; ++i) {
        CHECK(cudaFree(freed_at_exit.all.back()) == cudaSuccess);
        freed_at_exit.all.pop_back();
    }
    held_for_handler = allocate(7000);
    REQUIRE(std::atexit(
                [] { measured("cudaFree in an exit handler", cudaFree(held_for_handler)); }) == 0);
}

// The wait for the kernel finds the fault in cudaFree itself, where that waits.
ALONE_TEST_CASE("a fault found by cudaFree", "[errors]") {
    Device device;
    void* const memory = allocate(5000);
    void* const other = allocate(5000);
    Kernels kernels;
    Stream stream;
    kernels.fault(stream);
    const cudaError_t found = cudaFree(memory);
    if (free_finds_faults()) {
        CHECK(found == cudaErrorIllegalAddress);
    } else {
        CHECK((found == cudaSuccess || found == cudaErrorIllegalAddress));
    }
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(cudaFree(other) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
}

ALONE_TEST_CASE("after a fault every call says so", "[errors]") {
    Device device;
    std::vector<void*> all;
    for (int i = 0; i < 10; ++i)
        all.push_back(allocate(i % 2 == 0 ? 5000 : 3 * kMiB));
    REQUIRE(cudaFree(all[8]) == cudaSuccess); // something cached
    REQUIRE(cudaFree(all[9]) == cudaSuccess);
    Kernels kernels;
    Stream stream;
    kernels.fault(stream);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    // Memory at hand may be given out without asking the device; from the first free on all is
    // known.
    void* at_hand = nullptr;
    measured("cudaMalloc right after a fault was seen", cudaMalloc(&at_hand, 5000));
    CHECK(cudaFree(all[7]) == cudaErrorIllegalAddress);
    for (int round = 0; round < 3; ++round) {
        void* memory = nullptr;
        CUdeviceptr driver_memory = 0;
        CHECK(cudaMalloc(&memory, 5000) == cudaErrorIllegalAddress);
        CHECK(cudaMalloc(&memory, 3 * kMiB) == cudaErrorIllegalAddress);
        CHECK(cuMemAlloc(&driver_memory, 5000) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(cudaFree(all[static_cast<std::size_t>(round)]) == cudaErrorIllegalAddress);
        CHECK(cuMemFree(address(all[3])) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(cuMemFree(address(all[8])) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(cuMemFree(0) == CUDA_ERROR_ILLEGAL_ADDRESS);
        std::size_t free_bytes = 0;
        CHECK(cuMemGetInfo(&free_bytes, nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(cudaMemGetInfo(&free_bytes, &free_bytes) == cudaErrorIllegalAddress);
        CUdeviceptr base = 0;
        CHECK(cuMemGetAddressRange(&base, nullptr, address(all[4])) == CUDA_ERROR_ILLEGAL_ADDRESS);
        unsigned long long id = 0;
        measured("cuPointerGetAttribute after a fault",
                 cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(all[4])));
        measured("cuMemFreeAsync after a fault", cuMemFreeAsync(address(all[5]), stream));
        measured("cudaFree(null) after a fault", cudaFree(nullptr));
        CUipcMemHandle handle{};
        measured("cuIpcGetMemHandle after a fault", cuIpcGetMemHandle(&handle, address(all[6])));
        CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    }
}

// A reset is the way out.
ALONE_TEST_CASE("a device reset after a fault", "[errors][contexts]") {
    Device device;
    void* const before = allocate(5000);
    {
        Kernels kernels;
        kernels.fault(nullptr);
        CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    }
    const cudaError_t reset = cudaDeviceReset();
    measured("cudaDeviceReset after a fault", reset);
    cudaGetLastError();
    if (reset != cudaSuccess) return;
    void* memory = nullptr;
    const cudaError_t allocated = cudaMalloc(&memory, 5000);
    measured("cudaMalloc after a fault and a reset", allocated);
    cudaGetLastError();
    if (allocated != cudaSuccess) return;
    CHECK_FAILS(cudaFree(before == memory ? plus(before, 8) : before), cudaErrorInvalidValue);
    fill(memory, 5000, 3);
    CHECK(holds(memory, 5000, 3));
    CHECK(cudaFree(memory) == cudaSuccess);
}
