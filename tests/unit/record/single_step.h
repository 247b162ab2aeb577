// Looks at memory after every single instruction of a piece of code: what a process that is killed
// there would leave behind.
#pragma once

#include <csignal>
#include <functional>

#include <x86intrin.h>

namespace cachealloc::test {

inline std::function<void()>* g_look = nullptr;

/// Runs `work` and calls `look` after each of its instructions. `look` runs in a signal handler.
template <typename Work>
void single_step(Work work, std::function<void()> look) {
    constexpr unsigned long long kTrapFlag = 0x100;
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) { (*g_look)(); };
    sigaction(SIGTRAP, &action, &before);
    g_look = &look;
    __writeeflags(__readeflags() | kTrapFlag);
    work();
    __writeeflags(__readeflags() & ~kTrapFlag);
    g_look = nullptr;
    sigaction(SIGTRAP, &before, nullptr);
}

} // namespace cachealloc::test
