// Which streams a program works with lately: a hint for the choice between growing, waiting and a
// barrier, never a matter of correctness. A program that creates 32 streams and uses one counts as
// a program with one stream.
//
// To look at each launch costs a few nanoseconds, and a cache line where several threads launch. So
// once submissions were seen to change between streams nobody looks for the next questions, half as
// many as the answer is good for.
#pragma once

#include "shim/cuda_types.h"

#include <atomic>
#include <cstdint>

namespace cachealloc::shim {

class StreamUse {
  public:
    // For how many questions a change of streams is remembered.
    static constexpr std::uint32_t kLately = 64;

    // Work is being submitted to `stream` (a handle; default streams by their special ones). True
    // if it is another one than last time: need not be called again until several() says so.
    // Thread-safe; writes shared memory only when the stream is another than last time.
    bool submitted(CUstream stream) {
        if (is_last(stream)) return false;
        const auto handle = reinterpret_cast<std::uintptr_t>(stream);
        if (last_.exchange(handle, std::memory_order_relaxed) == kNone) return false;
        changed_.store(true, std::memory_order_relaxed);
        return true;
    }

    // Whether submitted(stream) would change nothing.
    bool is_last(CUstream stream) const {
        return last_.load(std::memory_order_relaxed) == reinterpret_cast<std::uintptr_t>(stream);
    }

    // Whether submissions changed from one stream to another within the last kLately questions.
    // Calls look() when submitted() is to be told again. Thread-safe.
    template <class Look>
    bool several(Look look) {
        if (changed_.load(std::memory_order_relaxed)) {
            changed_.store(false, std::memory_order_relaxed);
            left_.store(kLately, std::memory_order_relaxed);
            return true;
        }
        const std::uint32_t left = left_.load(std::memory_order_relaxed);
        if (left == 0) return false;
        left_.store(left - 1, std::memory_order_relaxed);
        if (left == kLately / 2) look();
        return true;
    }

  private:
    static constexpr std::uintptr_t kNone = ~std::uintptr_t{0};

    std::atomic<std::uintptr_t> last_{kNone};
    std::atomic<bool> changed_{false};
    std::atomic<std::uint32_t> left_{0}; // questions that the last change still answers
};

} // namespace cachealloc::shim
