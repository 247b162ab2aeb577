// A program with a planted leak: exactly three allocations of two functions are never given back,
// among many that are. Says on standard output what a leak report must find, a line of JSON for
// each place.
//
//   leak_app             leaks, and ends with status 0
//   leak_app --fill      two functions hold half of the device, a third asks for more than is left;
//                        status 3. Line 0 stands for "any".
#include "tests/apps/app.h"

#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

#define NO_INLINE __attribute__((noinline))

void say(const char* function, int line, int count, std::size_t bytes) {
    std::printf("{\"function\": \"%s\", \"line\": %d, \"count\": %d, \"bytes\": %zu}\n", function,
                line, count, bytes);
    std::fflush(stdout);
}

void* take(std::size_t bytes) {
    void* memory = nullptr;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

} // namespace

// Outside the unnamed namespace: their names are what a report must show.

// One call, two leaks.
NO_INLINE void* make_history(std::size_t bytes) {
    void* memory = nullptr;
    const int line = __LINE__ + 1;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    static bool said = false;
    if (!said) say("make_history", line, 2, bytes);
    said = true;
    return memory;
}

NO_INLINE void* make_lookup_table(std::size_t bytes) {
    void* memory = nullptr;
    const int line = __LINE__ + 1;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    say("make_lookup_table", line, 1, bytes);
    return memory;
}

// Temporary memory: all of it is given back.
NO_INLINE void work(std::size_t bytes) {
    std::vector<void*> blocks;
    for (std::size_t i = 1; i <= 8; ++i)
        blocks.push_back(take(bytes * i));
    for (void* block : blocks) {
        CUDA_CHECK(cudaMemset(block, 1, bytes));
        CUDA_CHECK(cudaFree(block));
    }
}

NO_INLINE void* hold_weights(std::size_t bytes) {
    void* memory = take(bytes);
    asm volatile("" ::: "memory"); // the caller stays in the stack
    return memory;
}

NO_INLINE void* hold_cache(std::size_t bytes) {
    void* memory = take(bytes);
    asm volatile("" ::: "memory");
    return memory;
}

NO_INLINE int ask_for_too_much(std::size_t bytes) {
    void* memory = nullptr;
    say("ask_for_too_much", __LINE__ + 1, 1, bytes);
    const cudaError_t error = cudaMalloc(&memory, bytes);
    return error == cudaErrorMemoryAllocation ? 3 : 1;
}

int main(int argc, char** argv) {
    CUDA_CHECK(cudaFree(nullptr));
    if (argc > 1 && std::strcmp(argv[1], "--fill") == 0) {
        std::size_t available = 0;
        std::size_t total = 0;
        CUDA_CHECK(cudaMemGetInfo(&available, &total));
        const std::size_t tenth = available / 10 / (2 * kMiB) * (2 * kMiB);
        for (int i = 0; i < 3; ++i)
            hold_weights(tenth);
        hold_cache(2 * tenth);
        work(kMiB);
        say("hold_weights", 0, 3, tenth);
        say("hold_cache", 0, 1, 2 * tenth);
        return ask_for_too_much(7 * tenth);
    }
    void* first = make_history(3 * kMiB);
    for (int i = 0; i < 50; ++i)
        work(100000);
    void* second = make_history(3 * kMiB);
    void* table = make_lookup_table(5 * kMiB + 123);
    for (int i = 0; i < 50; ++i)
        work(70000);
    return first != nullptr && second != nullptr && table != nullptr ? 0 : 1;
}
