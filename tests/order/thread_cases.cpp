// Threads that free what others allocate from at the same time.
#include "tests/order/cases.h"

#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace order {

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 60;

/// Blocks that one thread has used and any other may free.
class Handover {
  public:
    void give(Byte* block) {
        const std::lock_guard lock(mutex_);
        blocks_.push_back(block);
    }
    Byte* take() {
        const std::lock_guard lock(mutex_);
        if (blocks_.empty()) return nullptr;
        Byte* const block = blocks_.back();
        blocks_.pop_back();
        return block;
    }
    /// Counts how often an address comes that has come before.
    void saw(Byte* block) {
        const std::lock_guard lock(mutex_);
        if (!seen_.insert(block).second) ++reused;
    }
    int reused = 0;

  private:
    std::mutex mutex_;
    std::vector<Byte*> blocks_;
    std::set<Byte*> seen_;
};

cudaStream_t stream_of(int thread) {
    switch (thread % 4) {
    case 0:
        return make_stream();
    case 1:
        return make_stream(cudaStreamDefault);
    case 2:
        return cudaStreamPerThread;
    default:
        return cudaStreamLegacy;
    }
}

/// What a native cudaFree may do between two statements of one thread, another thread's may here:
/// each block is used by its owner's stream alone and freed while that work may be under way.
void work(Handover& handover, int thread, bool hand_over) {
    constexpr std::size_t kSizes[] = {512, 4096, 96 << 10, kBytes};
    std::mt19937 random(static_cast<unsigned>(thread) + 1);
    const cudaStream_t stream = stream_of(thread);
    for (int round = 0; round < kRounds; ++round) {
        const std::size_t bytes = kSizes[random() % 4];
        Byte* const block = allocate(bytes);
        handover.saw(block);
        ORDER_CHECK(fill(stream, block, kOld, bytes, random() % 20000));
        if (random() % 4 == 0) ORDER_CHECK(cudaMemsetAsync(block, kNew, bytes, stream));
        Byte* mine = block;
        if (hand_over) {
            handover.give(block);
            mine = handover.take();
        }
        if (mine != nullptr) release(mine);
    }
}

void run(bool hand_over) {
    Handover handover;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] { work(handover, i, hand_over); });
    for (std::thread& thread : threads)
        thread.join();
    while (Byte* const block = handover.take())
        release(block);
    drain();
    ORDER_REQUIRE(handover.reused > kThreads, kNotReused);
}

/// One thread only frees, another only allocates; the first hands over what its kernels still use.
void free_here_allocate_there() {
    Handover used;
    Handover fresh;
    constexpr int kBlocks = 200;
    constexpr int kAhead = 4;
    std::atomic<int> freed{0};
    const cudaStream_t stream = make_stream();
    const cudaStream_t other = make_stream();
    std::thread freeing([&] {
        while (freed.load() < kBlocks) {
            Byte* const block = used.take();
            if (block != nullptr) {
                release(block);
                ++freed;
            } else {
                std::this_thread::yield();
            }
        }
    });
    for (int round = 0; round < kBlocks; ++round) {
        while (freed.load() + kAhead < round)
            std::this_thread::yield();
        Byte* const block = allocate();
        fresh.saw(block);
        ORDER_CHECK(fill(round % 2 == 0 ? stream : other, block, kNew, kBytes, 5000));
        used.give(block);
    }
    freeing.join();
    drain();
    ORDER_REQUIRE(fresh.reused > 0, kNotReused);
}

constexpr Case kCases[] = {
    {"threads_own", [] { run(false); }},
    {"threads_handover", [] { run(true); }},
    {"free_here_allocate_there", free_here_allocate_there},
};

} // namespace

std::span<const Case> thread_cases() {
    return kCases;
}

} // namespace order
