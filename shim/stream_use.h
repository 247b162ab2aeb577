// Which streams a program works with lately: a hint for the choice between growing, waiting and a
// barrier, never a matter of correctness. A program that creates 32 streams and uses one counts as
// a program with one stream.
#pragma once

#include "shim/cuda_types.h"

#include <atomic>
#include <cstdint>

namespace cachealloc::shim {

class StreamUse {
  public:
    // Work is being submitted to `stream` (a handle; default streams by their special ones).
    // Thread-safe; writes shared memory only when the stream is another than last time.
    void submitted(CUstream stream) {
        const auto handle = reinterpret_cast<std::uintptr_t>(stream);
        if (last_.load(std::memory_order_relaxed) == handle) return;
        last_.store(handle, std::memory_order_relaxed);
        switches_.fetch_add(1, std::memory_order_relaxed);
    }

    // Whether submissions changed from one stream to another within the last kLately questions.
    // Thread-safe.
    bool several() {
        const std::uint64_t now = switches_.load(std::memory_order_relaxed);
        if (seen_.load(std::memory_order_relaxed) != now) {
            seen_.store(now, std::memory_order_relaxed);
            quiet_.store(0, std::memory_order_relaxed);
            return true;
        }
        return quiet_.fetch_add(1, std::memory_order_relaxed) < kLately;
    }

    static constexpr std::uint32_t kLately = 64;

  private:
    std::atomic<std::uintptr_t> last_{0};
    std::atomic<std::uint64_t> switches_{0};
    std::atomic<std::uint64_t> seen_{0};
    std::atomic<std::uint32_t> quiet_{kLately}; // until the first switch: one stream
};

} // namespace cachealloc::shim
