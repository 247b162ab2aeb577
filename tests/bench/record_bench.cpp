// What recording a pair of cuMemAlloc and cuMemFree costs, over a driver that does nothing
// (null_driver.cpp): the program is started with recording off, without stacks and with them, and
// the differences are the figures. Runs anywhere. Prints a line of JSON for each point.
//
//   record_bench                  depths 8, 30 and 60; 1 and 8 threads; stacks that stay the same
//   or
//                                 change with each pair among 256 in random order
//   record_bench --malloc         the same with malloc and free, for profilers of the heap; depth
//   10
//                                 and 30, stacks that stay the same
//   record_bench --events N       no figure: about N events for a reader, of changing stacks, sizes
//                                 and lifetimes
//
// Times are of the thread's own processor time, so that more threads than cores are no matter.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <thread>
#include <vector>

namespace {

using Address = std::uint64_t;

int (*g_allocate)(Address*, std::size_t) = nullptr;
int (*g_free)(Address) = nullptr;

[[noreturn]] void give_up(const char* what) {
    std::fprintf(stderr, "record_bench: %s\n", what);
    std::_Exit(1);
}

template <class Function>
Function look_up(void* driver, const char* name) {
    void* const function = dlsym(driver, name);
    if (function == nullptr) give_up(name);
    return reinterpret_cast<Function>(function);
}

void open_driver() {
    void* const driver = dlopen("libnull_driver.so", RTLD_NOW); // beside this program
    if (driver == nullptr) give_up(dlerror());
    g_allocate = look_up<int (*)(Address*, std::size_t)>(driver, "cuMemAlloc_v2");
    g_free = look_up<int (*)(Address)>(driver, "cuMemFree_v2");
}

Address take(std::size_t bytes) {
    Address address = 0;
    if (g_allocate(&address, bytes) != 0) give_up("cuMemAlloc");
    return address;
}

std::uint64_t next_random(std::uint64_t& state) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du;
}

class Work {
  public:
    virtual ~Work() = default;
    virtual void run() = 0;
};

// `left` calls deep, at each level through one of two places, as the bits of `path` say.
__attribute__((noinline)) void descend(int left, std::uint64_t path, Work& work) {
    if (left <= 0) {
        work.run();
        asm volatile("# the bottom" ::: "memory");
    } else if ((path & 1) != 0) {
        descend(left - 1, path >> 1, work);
        asm volatile("# one way down" ::: "memory");
    } else {
        descend(left - 1, path >> 1, work);
        asm volatile("# the other way down" ::: "memory");
    }
}

double thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Pairs final : Work {
    void run() override {
        for (int i = 0; i < count; ++i) {
            if (heap) {
                void* memory = std::malloc(4096);
                asm volatile("" : "+r"(memory)); // the pair is not seen through
                std::free(memory);
            } else {
                g_free(take(4096));
            }
        }
    }
    bool heap = false;
    int count = 0;
};

struct Point {
    int depth;
    int threads;
    const char* stacks; ///< same, varied, or fresh: varied too
    bool heap;

    [[nodiscard]] bool varied() const { return std::strcmp(stacks, "same") != 0; }
};

// The recorder sees this thread, main or the thread's start, and what lies below them too.
constexpr int kFramesAround = 5;

// ns a pair, of each stretch of the calling thread.
std::vector<double> stretches(const Point& point, std::uint64_t seed) {
    constexpr int kStretches = 31;
    constexpr int kPairs = 4000;
    Pairs pairs;
    pairs.heap = point.heap;
    const int down = point.depth - kFramesAround;
    std::array<std::uint64_t, 256> paths{};
    for (std::uint64_t& path : paths)
        path = next_random(seed);
    std::vector<double> times;
    for (int stretch = 0; stretch < kStretches + 1; ++stretch) {
        const double begin = thread_ns();
        if (point.varied()) {
            pairs.count = 1;
            for (int i = 0; i < kPairs; ++i)
                descend(down, paths[next_random(seed) % paths.size()], pairs);
        } else {
            pairs.count = kPairs;
            descend(down, 0, pairs);
        }
        if (stretch > 0) times.push_back((thread_ns() - begin) / kPairs); // the first warms up
    }
    return times;
}

void measure(const Point& point) {
    std::vector<std::vector<double>> times(static_cast<std::size_t>(point.threads));
    std::vector<std::thread> threads;
    std::atomic<int> ready{0};
    for (std::size_t i = 0; i < times.size(); ++i) {
        threads.emplace_back([&, i] {
            ++ready;
            while (ready < point.threads)
                std::this_thread::yield();
            times[i] = stretches(point, 77 + i);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    std::vector<double> all;
    for (const std::vector<double>& one : times)
        all.insert(all.end(), one.begin(), one.end());
    std::sort(all.begin(), all.end());
    std::printf("{\"stacks\": \"%s\", \"depth\": %d, \"threads\": %d, \"ns\": %.1f}\n",
                point.stacks, point.depth, point.threads, all[all.size() / 2]);
    std::fflush(stdout);
}

// A random block of a thousand is replaced at each step, from one of 256 places 30 calls deep.
struct Churn final : Work {
    void run() override {
        Address& victim = live[next_random(state) % live.size()];
        if (victim != 0) g_free(victim);
        const std::uint64_t random = next_random(state);
        victim = take((std::size_t{256} << (random % 15)) + (random >> 32) % 256);
    }
    std::array<Address, 1000> live{};
    std::uint64_t state = 99;
};

void make_events(long count) {
    Churn churn;
    std::uint64_t seed = 5;
    std::array<std::uint64_t, 256> paths{};
    for (std::uint64_t& path : paths)
        path = next_random(seed);
    for (long i = 0; i < count / 2; ++i)
        descend(25, paths[next_random(seed) % paths.size()], churn);
    for (const Address address : churn.live)
        if (address != 0) g_free(address);
}

} // namespace

int main(int argc, char** argv) {
    const bool heap = argc > 1 && std::strcmp(argv[1], "--malloc") == 0;
    if (!heap) open_driver();
    if (argc > 2 && std::strcmp(argv[1], "--events") == 0) {
        make_events(std::atol(argv[2]));
        return 0;
    }
    if (heap) {
        for (const int threads : {1, 2})
            for (const int depth : {10, 30})
                measure({depth, threads, "same", true});
        return 0;
    }
    measure({30, 1, "fresh", false});
    Pairs warm_up;
    warm_up.count = 700000; // more than 64 MiB of events
    warm_up.run();
    for (const char* const stacks : {"same", "varied"})
        for (const int threads : {1, 8})
            for (const int depth : {8, 30, 60})
                measure({depth, threads, stacks, false});
    return 0;
}
