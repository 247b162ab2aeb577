#include "core/record/spin_lock.h"

#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cachealloc {

namespace {

constexpr std::uint32_t kSpins = 100;        ///< before the holder is thought to have lost its core
constexpr std::uint32_t kYields = 3'000'000; ///< about a second

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

} // namespace

bool SpinLock::lock_slowly() {
    for (std::uint32_t tries = 0; tries < kSpins + kYields; ++tries) {
        if (tries < kSpins) {
            pause_briefly();
        } else {
            sched_yield();
        }
        if (held_.load(std::memory_order_relaxed)) continue;
        if (broken_.load(std::memory_order_relaxed)) return false;
        if (!held_.exchange(true, std::memory_order_acquire)) return true;
    }
    broken_.store(true, std::memory_order_relaxed);
    return false;
}

} // namespace cachealloc
