#pragma once

#include <atomic>
#include <cstdint>

namespace cachealloc {

/// A lock for a few instructions, without futex, heap or destructor: it may lie in zeroed memory.
///
/// Invariant: nobody hangs on it. A holder that was interrupted for good (a signal handler that
/// jumped out of the recorder) makes others wait about a second, once; from then on the lock is
/// broken, and lock() fails at once for everybody.
class SpinLock {
  public:
    /// False where the lock is broken: then do without what it guards, for ever.
    bool lock() {
        if (broken_.load(std::memory_order_relaxed)) return false;
        if (!held_.exchange(true, std::memory_order_acquire)) return true;
        return lock_slowly();
    }
    void unlock() { held_.store(false, std::memory_order_release); }

  private:
    bool lock_slowly();

    std::atomic<bool> held_;
    std::atomic<bool> broken_;
};

} // namespace cachealloc
