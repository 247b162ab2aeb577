// What the host programs of these tests share: the driver, opened as a plug-in opens it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

namespace crash {

using Address = std::uint64_t;

[[noreturn]] inline void give_up(const char* what) {
    std::printf("FAILED: %s\n", what);
    std::fflush(stdout);
    std::_Exit(1);
}

inline void require(bool condition, const char* what) {
    if (!condition) give_up(what);
}

/// The driver with a context for device 0, current in the thread that made this. Ends the process
/// where there is none. Threads may share one; each calls enter() first.
class Driver {
  public:
    Driver() {
        // Not by the name that the loader would find for a linked program: tests choose the driver.
        const char* const chosen = std::getenv("CRASH_DRIVER");
        library_ = dlopen(chosen != nullptr ? chosen : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        require(library_ != nullptr, "the driver opens");
        find(allocate, "cuMemAlloc_v2");
        find(release, "cuMemFree_v2");
        find(set_current_, "cuCtxSetCurrent");
        int (*init)(unsigned) = nullptr;
        int (*retain)(void**, int) = nullptr;
        find(init, "cuInit");
        find(retain, "cuDevicePrimaryCtxRetain");
        require(init(0) == 0 && retain(&context_, 0) == 0, "a context");
        enter();
    }

    /// Makes the context current in the calling thread.
    void enter() const { require(set_current_(context_) == 0, "cuCtxSetCurrent"); }

    /// `bytes` of device memory; ends the process if there is none.
    Address take(std::size_t bytes) const {
        Address address = 0;
        require(allocate(&address, bytes) == 0, "cuMemAlloc");
        return address;
    }

    void give_back(Address address) const { require(release(address) == 0, "cuMemFree"); }

    int (*allocate)(Address*, std::size_t) = nullptr;
    int (*release)(Address) = nullptr;

  private:
    template <class Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(library_, name));
        require(function != nullptr, name);
    }

    void* library_ = nullptr;
    void* context_ = nullptr;
    int (*set_current_)(void*) = nullptr;
};

} // namespace crash
