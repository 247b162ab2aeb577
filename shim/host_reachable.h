// Memory that kernels can write and the host can read, so that the host may look at any kernel's
// results: managed memory, and pinned memory whose device address the program asked for.
//
// Owning pinned memory alone is no sign: PyTorch, cuDNN and XLA all do, and copy. A library's few
// bytes are no sign either: cuDNN and its like ask for the device address of pinned words that only
// they read.
//
// Invariant: while such memory is known to exist, any() is true. What finds no room in the table
// counts for ever. Thread-safe; nothing here calls CUDA.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace cachealloc::shim {

class HostReachable {
  public:
    // Pinned allocations up to this size are taken for a library's own.
    static constexpr std::uint64_t kLibraryBytes = 4096;

    bool any() const { return count_.load(std::memory_order_acquire) != 0; }

    // Managed memory begins at `address`.
    void managed(std::uintptr_t address);

    // Managed memory that is never freed: a module's variables, a pool of managed memory.
    void managed_for_ever();

    // A device or a process that no order of ours reaches may read device memory from now on: what
    // the program tells it after a free, it sees as the host would.
    void read_from_outside() { managed_for_ever(); }

    // A pinned allocation of this size begins at `address`. Only those that may be a library's own
    // are remembered: the driver is asked for the size of the others, if need be.
    void pinned(std::uintptr_t address, std::uint64_t bytes);
    // The size of the remembered one that begins at `address`, else 0.
    std::uint64_t pinned_bytes(std::uintptr_t address);

    // The program was given the device address of a pinned allocation that begins at `address` on
    // the host; `bytes` is its size, 0 if the driver does not say.
    void mapped(std::uintptr_t address, std::uint64_t bytes);

    // The memory that began at `address`, if it was any of these, is about to be freed: from then
    // on another thread may be given the address. Returns whether it counted; if it is not freed
    // after all, it has to be said again.
    bool freeing(std::uintptr_t address);
    void not_freed(std::uintptr_t address) { add(address); }

    // How often device addresses of pinned memory were asked for, and the largest such allocation.
    std::uint64_t mapped_asked() const { return asked_.load(std::memory_order_relaxed); }
    std::uint64_t mapped_largest() const { return largest_.load(std::memory_order_relaxed); }

    static constexpr std::size_t kMost = 256;

  private:
    void add(std::uintptr_t address);

    std::atomic<std::uint32_t> count_{0};
    std::atomic<std::uint64_t> asked_{0};
    std::atomic<std::uint64_t> largest_{0};
    std::mutex mutex_;
    std::array<std::uintptr_t, kMost> addresses_{}; // 0: free
    struct Pinned {
        std::uintptr_t address = 0; // 0: free
        std::uint64_t bytes = 0;
    };
    std::atomic<std::uint32_t> pinned_count_{0};
    std::array<Pinned, kMost> pinned_{};
};

} // namespace cachealloc::shim
