// Any thread may free what another allocated.
#include "tests/contract/contract.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

using namespace contract;

namespace {

struct Piece {
    void* memory = nullptr;
    std::size_t bytes = 0;
    unsigned tag = 0;
};

// What one thread hands to the next.
class Queue {
  public:
    void put(const Piece& piece) {
        const std::lock_guard lock(mutex_);
        pieces_.push_back(piece);
        filled_.notify_one();
    }
    Piece get() {
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [this] { return !pieces_.empty(); });
        const Piece piece = pieces_.front();
        pieces_.pop_front();
        return piece;
    }

  private:
    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<Piece> pieces_;
};

} // namespace

TEST_CASE("a ring of threads frees what the one before allocated", "[threads]") {
    constexpr unsigned kThreads = 6;
    constexpr unsigned kPieces = 60;
    Device device;
    const auto seed = static_cast<unsigned>(random_source("a ring of threads")());
    std::array<Queue, kThreads> queues;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned me = 0; me < kThreads; ++me) {
        threads.emplace_back([&, me] {
            std::mt19937 random(seed + me);
            cudaStream_t stream = nullptr;
            wrong += cudaSetDevice(0) != cudaSuccess;
            wrong += cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
            for (unsigned i = 0; i < kPieces; ++i) {
                Piece made;
                made.bytes = 4 * (1 + random() % (i % 8 == 0 ? 500000 : 5000));
                made.tag = me * 1000 + i;
                if (random() % 2 == 0) {
                    wrong += cudaMalloc(&made.memory, made.bytes) != cudaSuccess;
                } else {
                    CUdeviceptr memory = 0;
                    wrong += cuMemAlloc(&memory, made.bytes) != CUDA_SUCCESS;
                    made.memory = pointer(memory);
                }
                wrong += cuMemsetD32Async(address(made.memory), made.tag, made.bytes / 4, stream) !=
                         CUDA_SUCCESS;
                wrong += cudaStreamSynchronize(stream) != cudaSuccess;
                queues[(me + 1) % kThreads].put(made);

                const Piece got = queues[me].get();
                std::vector<unsigned> host(got.bytes / 4);
                wrong += cudaMemcpyAsync(host.data(), got.memory, got.bytes, cudaMemcpyDeviceToHost,
                                         stream) != cudaSuccess;
                wrong += cudaStreamSynchronize(stream) != cudaSuccess;
                for (const unsigned word : host)
                    wrong += word != got.tag;
                wrong += (random() % 2 == 0 ? cudaFree(got.memory) == cudaSuccess
                                            : cuMemFree(address(got.memory)) == CUDA_SUCCESS)
                             ? 0
                             : 1;
            }
            wrong += cudaStreamDestroy(stream) != cudaSuccess;
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("threads that free the same pointer: one succeeds", "[threads][errors]") {
    constexpr int kThreads = 4;
    if (!simcuda::control::simulated() && getenv("LD_PRELOAD") == nullptr) {
        WARN("skipped natively: frees of one pointer by several threads crash driver 580.159");
        return;
    }
    Device device;
    void* const neighbour = allocate(4096);
    fill(neighbour, 4096, 1);
    for (int round = 0; round < 30; ++round) {
        void* const memory = allocate(4096);
        std::atomic<int> ready{0};
        std::atomic<int> freed{0};
        std::atomic<int> refused{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < kThreads; ++i) {
            threads.emplace_back([&] {
                cudaSetDevice(0);
                cuCtxSetCurrent(device.context());
                ++ready;
                while (ready != kThreads)
                    std::this_thread::yield();
                const CUresult code = cuMemFree(address(memory));
                if (code == CUDA_SUCCESS) ++freed;
                if (code == CUDA_ERROR_INVALID_VALUE) ++refused;
            });
        }
        for (std::thread& thread : threads)
            thread.join();
        REQUIRE(freed == 1);
        REQUIRE(refused == kThreads - 1);
    }
    CHECK(holds(neighbour, 4096, 1));
    CHECK(cudaFree(neighbour) == cudaSuccess);
}

// What dead threads freed is there for the living: all rounds together exceed the device.
ALONE_TEST_CASE("memory that ended threads freed comes back", "[threads][info]") {
    Device device;
    const std::size_t before = free_memory();
    const std::size_t piece = before / 16;
    std::atomic<int> wrong{0};
    for (int round = 0; round < 12; ++round) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&] {
                void* memory = nullptr;
                wrong += cudaMalloc(&memory, piece) != cudaSuccess;
                wrong += cudaFree(memory) != cudaSuccess;
                for (std::size_t bytes = 512; bytes <= 512 * kKiB; bytes *= 2) {
                    wrong += cudaMalloc(&memory, bytes) != cudaSuccess;
                    wrong += cudaFree(memory) != cudaSuccess;
                }
            });
        }
        for (std::thread& thread : threads)
            thread.join();
    }
    CHECK(wrong == 0);
    CHECK(free_memory() + 2 * kSlackOfFree >= before);
    void* const most = allocate(free_memory() / 10 * 9);
    CHECK(cudaFree(most) == cudaSuccess);
}

// Threads allocate and free beside one that fills the device and runs out again and again.
ALONE_TEST_CASE("running out of memory beside other threads", "[threads][errors]") {
    Device device;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned me = 0; me < 3; ++me) {
        threads.emplace_back([&, me] {
            while (!stop) {
                void* memory = nullptr;
                const cudaError_t code = cudaMalloc(&memory, 4 * kMiB + me * 4096);
                if (code == cudaSuccess) {
                    wrong += cudaFree(memory) != cudaSuccess;
                } else {
                    wrong += code != cudaErrorMemoryAllocation;
                    wrong += cudaGetLastError() != cudaErrorMemoryAllocation;
                }
            }
        });
    }
    for (int round = 0; round < 4; ++round) {
        std::vector<void*> all;
        const std::size_t piece = std::max(free_memory() / 6, 64 * kMiB);
        for (;;) {
            void* memory = nullptr;
            if (cudaMalloc(&memory, piece) != cudaSuccess) break;
            all.push_back(memory);
        }
        CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
        CHECK(all.size() >= 4);
        for (void* const memory : all)
            CHECK(cudaFree(memory) == cudaSuccess);
    }
    stop = true;
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}
