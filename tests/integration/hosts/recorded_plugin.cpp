// C++ that a C program or Python opens at run time and that is recorded: allocates at the bottom of
// what exceptions, cancellation and pthread_exit unwind, in destructors on the way and in handlers.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <pthread.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace {

using Allocate = int (*)(std::uint64_t*, std::size_t);
using Free = int (*)(std::uint64_t);
using SetCurrent = int (*)(void*);

Allocate g_allocate = nullptr;
Free g_free = nullptr;
SetCurrent g_set_current = nullptr;
void* g_context = nullptr;
std::atomic<int> g_destroyed{0};
std::atomic<int> g_failed{0};

void use_memory() {
    std::uint64_t address = 0;
    if (g_allocate(&address, 4096) != 0 || g_free(address) != 0) ++g_failed;
}

struct Counts {
    ~Counts() {
        use_memory();
        ++g_destroyed;
    }
};

void deep(int depth) {
    const Counts counts;
    if (depth == 0) {
        use_memory();
        throw std::runtime_error("thrown");
    }
    deep(depth - 1);
}

void rethrowing() {
    const Counts counts;
    try {
        deep(8);
    } catch (...) {
        use_memory();
        throw;
    }
}

void* wait_for_cancellation(void* started) {
    g_set_current(g_context);
    const Counts counts;
    use_memory();
    static_cast<std::atomic<bool>*>(started)->store(true);
    for (;;)
        pause();
}

void* leave(void*) {
    g_set_current(g_context);
    const Counts counts;
    use_memory();
    pthread_exit(nullptr);
}

} // namespace

// Returns the number of frames that unwound properly: 10 by the exception, one by each thread's
// end; less than that if a call of CUDA failed.
extern "C" __attribute__((visibility("default"))) int
plugin_run_recorded(Allocate allocate, Free release, SetCurrent set_current, void* context) {
    g_allocate = allocate;
    g_free = release;
    g_set_current = set_current;
    g_context = context;
    g_destroyed = 0;
    try {
        rethrowing();
    } catch (const std::exception& error) {
        use_memory();
        if (std::string(error.what()) != "thrown") return -1;
    }
    pthread_t thread{};
    std::atomic<bool> started{false};
    if (pthread_create(&thread, nullptr, wait_for_cancellation, &started) != 0) return -2;
    while (!started)
        sched_yield();
    pthread_cancel(thread);
    void* result = nullptr;
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED) return -3;
    if (pthread_create(&thread, nullptr, leave, nullptr) != 0) return -4;
    pthread_join(thread, nullptr);
    return g_destroyed - g_failed;
}
