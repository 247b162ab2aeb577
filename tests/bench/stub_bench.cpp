// What the preload adds to calls of the driver, to a fraction of a nanosecond: every function of
// the driver behind it (null_driver.cpp) does nothing. Runs anywhere.
//
//   stub_bench [--streams N]   ns per call of what submits work, on N non-blocking streams in turn,
//                              0: on the legacy stream; and of one cached pair
//   stub_bench --idle N        the same on the legacy stream, beside N streams without any work
//   stub_bench --late          ns of free + allocate in a process whose caches are cold, while the
//                              device is busy: three pairs in turn, as late_launch does them
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Stream = void*;

void* g_driver = nullptr;

template <class Function>
Function* look_up(const char* name) {
    auto* const function = reinterpret_cast<Function*>(dlsym(g_driver, name));
    if (function == nullptr) {
        std::fprintf(stderr, "stub_bench: the driver lacks %s\n", name);
        std::exit(1);
    }
    return function;
}

void check(int status, const char* what) {
    if (status == 0) return;
    std::fprintf(stderr, "stub_bench: %s: %d\n", what, status);
    std::exit(1);
}

double ns_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// Each call is the fastest of several stretches: whatever disturbs a stretch makes it longer.
template <class Call>
void measure(const char* what, const std::vector<Stream>& streams, Call call) {
    constexpr int kStretches = 41;
    constexpr int kCalls = 20000;
    double best = 1e9;
    for (int stretch = 0; stretch < kStretches; ++stretch) {
        const auto begin = Clock::now();
        std::size_t at = 0;
        for (int i = 0; i < kCalls; ++i) {
            call(streams[at]);
            if (++at == streams.size()) at = 0;
        }
        best = std::min(best, ns_since(begin) / kCalls);
    }
    std::printf("{\"what\": \"%s\", \"ns\": %.2f}\n", what, best);
}

void calls(int count, int idle) {
    const auto create = look_up<int(Stream*, unsigned)>("cuStreamCreate");
    const auto launch = look_up<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, unsigned, Stream, void**, void**)>("cuLaunchKernel");
    const auto launch_ex = look_up<int(const void*, void*, void**, void**)>("cuLaunchKernelEx");
    const auto set =
        look_up<int(std::uint64_t, unsigned char, std::size_t, Stream)>("cuMemsetD8Async");
    const auto copy_in =
        look_up<int(std::uint64_t, const void*, std::size_t, Stream)>("cuMemcpyHtoDAsync_v2");
    const auto copy_out =
        look_up<int(void*, std::uint64_t, std::size_t, Stream)>("cuMemcpyDtoHAsync_v2");
    const auto instantiate =
        look_up<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags");
    const auto graph = look_up<int(void*, Stream)>("cuGraphLaunch");
    const auto allocate = look_up<int(std::uint64_t*, std::size_t)>("cuMemAlloc_v2");
    const auto free = look_up<int(std::uint64_t)>("cuMemFree_v2");

    const auto allocate_on = look_up<int(std::uint64_t*, std::size_t, Stream)>("cuMemAllocAsync");
    const auto free_on = look_up<int(std::uint64_t, Stream)>("cuMemFreeAsync");

    void* primary = nullptr; // stream-ordered calls are served in a primary context
    check(look_up<int(void**, int)>("cuDevicePrimaryCtxRetain")(&primary, 0), "retain");
    std::uint64_t address = 0;
    check(allocate(&address, 4096), "cuMemAlloc"); // a process that uses CUDA: it has a pool
    std::vector<Stream> streams(static_cast<std::size_t>(std::max(count, 1)));
    for (int i = 0; i < count; ++i)
        check(create(&streams[static_cast<std::size_t>(i)], 1), "cuStreamCreate");
    for (int i = 0; i < idle; ++i) {
        Stream unused = nullptr;
        check(create(&unused, 1), "cuStreamCreate");
    }

    measure("cuLaunchKernel", streams,
            [&](Stream stream) { launch(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr); });
    // CUlaunchConfig: grid, block, shared bytes, stream, attributes, how many.
    struct Config {
        unsigned sizes[7];
        Stream stream;
        void* attributes;
        unsigned count;
    } config{{1, 1, 1, 1, 1, 1, 0}, nullptr, nullptr, 0};
    measure("cuLaunchKernelEx", streams, [&](Stream stream) {
        config.stream = stream;
        launch_ex(&config, nullptr, nullptr, nullptr);
    });
    measure("cuMemsetD8Async", streams, [&](Stream stream) { set(address, 0, 64, stream); });
    char host[64];
    measure("cuMemcpyHtoDAsync", streams,
            [&](Stream stream) { copy_in(address, host, sizeof host, stream); });
    measure("cuMemcpyDtoHAsync", streams,
            [&](Stream stream) { copy_out(host, address, sizeof host, stream); });
    void* executable = nullptr; // of a graph without nodes
    check(instantiate(&executable, nullptr, 0), "cuGraphInstantiate");
    measure("cuGraphLaunch", streams, [&](Stream stream) { graph(executable, stream); });
    measure("cuMemAlloc + cuMemFree", streams, [&](Stream) {
        std::uint64_t mine = 0;
        allocate(&mine, 4096);
        free(mine);
    });
    measure("cuMemAllocAsync + cuMemFreeAsync", streams, [&](Stream stream) {
        std::uint64_t mine = 0;
        allocate_on(&mine, 4096, stream);
        free_on(mine, stream);
    });
    check(free(address), "cuMemFree");
}

void late() {
    constexpr int kRounds = 51;
    constexpr std::uint64_t kBytes = std::uint64_t{128} << 20;
    const auto create = look_up<int(Stream*, unsigned)>("cuStreamCreate");
    const auto allocate = look_up<int(std::uint64_t*, std::size_t)>("cuMemAlloc_v2");
    const auto free = look_up<int(std::uint64_t)>("cuMemFree_v2");
    const auto set =
        look_up<int(std::uint64_t, unsigned char, std::size_t, Stream)>("cuMemsetD8Async");
    const auto busy = look_up<void(int)>("null_driver_busy");
    Stream reader = nullptr;
    Stream writer = nullptr;
    check(create(&reader, 1), "cuStreamCreate");
    check(create(&writer, 1), "cuStreamCreate");
    std::uint64_t block = 0;
    check(allocate(&block, kBytes), "cuMemAlloc");
    std::vector<char> evict(std::size_t{64} << 20);
    for (int round = 0; round < kRounds; ++round) {
        busy(0);
        set(block, 0, kBytes, reader);
        for (std::size_t i = 0; i < evict.size(); i += 64)
            ++evict[i];
        busy(1);
        double spent[3];
        for (double& ns : spent) {
            const auto begin = Clock::now();
            check(free(block), "cuMemFree");
            check(allocate(&block, kBytes), "cuMemAlloc");
            ns = ns_since(begin);
            set(block, 1, kBytes, writer);
        }
        if (round > 0) {
            std::printf("{\"what\": \"late\", \"ns\": [%.0f, %.0f, %.0f]}\n", spent[0], spent[1],
                        spent[2]);
        }
    }
    busy(0);
}

} // namespace

int main(int argc, char** argv) {
    g_driver = dlopen("libnull_driver.so", RTLD_NOW); // beside this program
    if (g_driver == nullptr) {
        std::fprintf(stderr, "stub_bench: %s\n", dlerror());
        return 1;
    }
    if (argc > 1 && std::strcmp(argv[1], "--late") == 0) {
        late();
    } else {
        const int count = argc > 2 ? std::atoi(argv[2]) : 0;
        const bool idle = argc > 2 && std::strcmp(argv[1], "--idle") == 0;
        calls(idle ? 0 : count, idle ? count : 0);
    }
    return 0;
}
