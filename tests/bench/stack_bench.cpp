// What capturing a stack costs: the walker beside libunwind's unw_backtrace and libgcc's
// _Unwind_Backtrace, at depths 8, 30 and 60, hot and with cold caches, by 1 and by 8 threads.
// Prints one table, in ns a stack. Runs anywhere; a row is missing where libunwind.so.8 is.
//
// Hot: the best batch of many captures in a loop, so that neighbours on the machine hardly count.
// Cold: the median of single captures, each after the thread has read 4 MiB of its own. Times are
// of the thread's own processor time: more threads than cores are no matter.
#include "core/record/unwind/stack_unwinder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include <dlfcn.h>

using namespace cachealloc;

namespace {

constexpr std::size_t kRoom = 128;
constexpr int kBatches = 40;
constexpr int kColdCaptures = 300;

bool find_object(std::uintptr_t address, CodeObject& object) {
    dl_find_object found;
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return false;
    object = {reinterpret_cast<std::uintptr_t>(found.dlfo_map_start),
              reinterpret_cast<std::uintptr_t>(found.dlfo_map_end),
              static_cast<const std::byte*>(found.dlfo_eh_frame)};
    return true;
}

double now_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

struct Job {
    StackUnwinder& unwinder;
    std::size_t depth;
    int batch;
    double hot_ns = 0;
    double cold_ns = 0;
    std::size_t frames = 0;
};

double median(std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

[[gnu::noinline]] void measure(Job& job) {
    std::array<trace::Frame, kRoom> frames;
    bool cut = false;
    const auto capture = [&] { job.frames = job.unwinder.capture(frames.data(), kRoom, cut); };
    for (int i = 0; i < job.batch; ++i)
        capture();
    job.hot_ns = 1e18;
    for (int batch = 0; batch < kBatches; ++batch) {
        const double start = now_ns();
        for (int i = 0; i < job.batch; ++i)
            capture();
        job.hot_ns = std::min(job.hot_ns, (now_ns() - start) / job.batch);
    }
    std::vector<std::uint64_t> other((4U << 20) / sizeof(std::uint64_t), 1);
    std::vector<double> cold;
    std::vector<double> clock;
    volatile std::uint64_t sum = 0;
    for (int i = 0; i < kColdCaptures; ++i) {
        for (std::size_t at = 0; at < other.size(); at += 8)
            sum = sum + other[at];
        const double start = now_ns();
        const double middle = now_ns();
        capture();
        cold.push_back(now_ns() - middle);
        clock.push_back(middle - start);
    }
    job.cold_ns = median(cold) - median(clock);
}

// Frames of several kinds, in turn: small and large ones, dynamic ones (with frame pointers).
template <unsigned kKind>
[[gnu::noinline]] void level(Job& job, unsigned left) {
    volatile char fixed[16 + 40 * kKind];
    fixed[0] = static_cast<char>(left);
    char* dynamic = nullptr;
    if constexpr (kKind % 4 == 3) dynamic = static_cast<char*>(__builtin_alloca(left + 16));
    if (dynamic != nullptr) asm volatile("" : : "r"(dynamic) : "memory");
    if (left == 0)
        measure(job);
    else
        level<(kKind * 5 + 1) % 8>(job, left - 1);
    fixed[0] = static_cast<char>(fixed[0] + 1);
}

// As deep a stack as asked, whatever lies below a thread's start: level(), measure() and what the
// capture finds from here.
void run(Job& job) {
    std::array<trace::Frame, kRoom> frames;
    bool cut = false;
    const std::size_t below = job.unwinder.capture(frames.data(), kRoom, cut);
    level<0>(job, static_cast<unsigned>(job.depth - std::min(job.depth - 1, below + 2)));
}

void print_row(const char* name, UnwinderChoice choice, const UnwindPlatform& platform, int batch) {
    for (const unsigned threads : {1U, 8U}) {
        std::printf("%-22s %7u", name, threads);
        for (const std::size_t depth : {8U, 30U, 60U}) {
            const auto unwinder = std::make_unique<StackUnwinder>(choice, platform);
            std::vector<Job> jobs(threads, Job{*unwinder, depth, batch});
            std::vector<std::thread> running;
            for (Job& job : jobs)
                running.emplace_back([&job] { run(job); });
            for (std::thread& thread : running)
                thread.join();
            std::vector<double> hot;
            std::vector<double> cold;
            for (const Job& job : jobs) {
                hot.push_back(job.hot_ns);
                cold.push_back(job.cold_ns);
            }
            std::printf("  %4zu: %6.0f / %6.0f", jobs[0].frames, median(hot), median(cold));
        }
        std::printf("\n");
    }
}

} // namespace

int main() {
    UnwindPlatform platform;
    platform.find_object = find_object;
    if (void* const library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL))
        platform.unw_backtrace =
            reinterpret_cast<int (*)(void**, int)>(dlsym(library, "unw_backtrace"));
    std::printf("ns a stack, hot / cold\n%-22s %7s  frames: ns\n", "", "threads");
    print_row("walker", UnwinderChoice::automatic, platform, 5000);
    if (platform.unw_backtrace != nullptr)
        print_row("unw_backtrace", UnwinderChoice::libunwind, platform, 2000);
    print_row("_Unwind_Backtrace", UnwinderChoice::gcc, platform, 200);
}
