// C++ that a C program opens at run time: exceptions, cancellation and pthread_exit all unwind
// through its frames.
#include <atomic>
#include <pthread.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace {
std::atomic<int> destroyed{0};
struct Counts {
    ~Counts() { ++destroyed; }
};

void* wait_for_cancellation(void* started) {
    const Counts counts;
    static_cast<std::atomic<bool>*>(started)->store(true);
    for (;;)
        pause();
}

void* leave(void*) {
    const Counts counts;
    pthread_exit(nullptr);
}

void deep(int depth) {
    const Counts counts;
    if (depth == 0) throw std::runtime_error("thrown");
    deep(depth - 1);
}
} // namespace

// Returns the number of frames that unwound properly: 10 by the exception, one by each thread's
// end.
extern "C" __attribute__((visibility("default"))) int plugin_run() {
    destroyed = 0;
    try {
        deep(9);
    } catch (const std::exception& error) {
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
    return destroyed;
}
