// Host time of free + allocate while a long kernel on another stream still reads the freed buffer.
//
// Native cudaFree waits for the kernel. An allocator that hands the block out at once must order
// whatever writes it next behind that kernel: the kernel checks, late, that no word has changed.
// Each round: fill p, launch the late reader of p on stream A, then three times free the block,
// allocate one of the same size, and overwrite that on stream B.
//
//   --way malloc   cudaFree and cudaMalloc
//         async    cudaFreeAsync and cudaMallocAsync, on stream B after it waits for A's event
//         events   no memory at all: one context event recorded, asked for and waited for on the
//                  device, which is what ordering costs in the driver
//   --rounds N (8)   --wait-ms N (200)   --mib N (128)
#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

#include <cuda_runtime.h>

#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <memory>

namespace {

constexpr unsigned kPattern = 0xA5A5A5A5u;
constexpr int kPairs = 3; // fewer than three fences are younger than the oldest

} // namespace

// Waits, then counts the words of `data` that differ from `expected`.
extern "C" __global__ void late_reader(const volatile unsigned* data, std::size_t words,
                                       unsigned expected, std::uint64_t wait_ns,
                                       unsigned long long* wrong) {
    app::spin_ns(wait_ns);
    unsigned long long bad = 0;
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        if (data[i] != expected) ++bad;
    }
    if (bad != 0) atomicAdd(wrong, bad);
}

SIMCUDA_TWIN(late_reader) {
    auto data = simcuda_arg<const unsigned*>(args, 0);
    auto words = simcuda_arg<std::size_t>(args, 1);
    auto expected = simcuda_arg<unsigned>(args, 2);
    auto wait_ns = simcuda_arg<std::uint64_t>(args, 3);
    auto wrong = simcuda_arg<unsigned long long*>(args, 4);
    sim->reads(sim, data, words * sizeof(unsigned));
    sim->writes(sim, wrong, sizeof *wrong);
    sim->duration_ns(sim, wait_ns);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < words; ++i) {
            if (data[i] != expected) ++*wrong;
        }
    });
}

namespace {

double microseconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
}

// What is timed: three pairs of the same kind in turn.
class Way {
  public:
    virtual ~Way() = default;
    // The reader of the block has just been launched on `reader`.
    virtual void launched(cudaStream_t reader) { (void)reader; }
    virtual void pair(void*& block, std::size_t bytes) = 0;
};

class Malloc final : public Way {
  public:
    void pair(void*& block, std::size_t bytes) override {
        CUDA_CHECK(cudaFree(block));
        CUDA_CHECK(cudaMalloc(&block, bytes));
    }
};

class Async final : public Way {
  public:
    explicit Async(cudaStream_t stream) : stream_(stream) {
        cudaMemPool_t pool = nullptr;
        std::uint64_t keep = UINT64_MAX;
        CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
        CUDA_CHECK(cudaEventCreateWithFlags(&read_, cudaEventDisableTiming));
    }
    void launched(cudaStream_t reader) override {
        CUDA_CHECK(cudaEventRecord(read_, reader));
        CUDA_CHECK(cudaStreamWaitEvent(stream_, read_, 0));
    }
    void pair(void*& block, std::size_t bytes) override {
        CUDA_CHECK(cudaFreeAsync(block, stream_));
        CUDA_CHECK(cudaMallocAsync(&block, bytes, stream_));
    }

  private:
    cudaStream_t stream_;
    cudaEvent_t read_ = nullptr;
};

// The driver's functions, by name: no toolkit is needed to link.
class Events final : public Way {
  public:
    Events() {
        void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
        REQUIRE_TRUE(driver != nullptr);
        look_up(driver, "cuCtxGetCurrent", current_);
        look_up(driver, "cuCtxRecordEvent", record_);
        look_up(driver, "cuEventQuery", query_);
        look_up(driver, "cuCtxWaitEvent", wait_);
        for (cudaEvent_t& event : events_)
            CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    void pair(void*&, std::size_t) override {
        cudaEvent_t const event = events_[next_++ % kEvents];
        void* context = nullptr;
        int status = current_(&context);
        status |= record_(context, event);
        const int answer = query_(event);
        status |= answer == kNotReady ? 0 : answer;
        status |= wait_(context, event);
        REQUIRE_TRUE(status == 0);
    }

  private:
    static constexpr int kNotReady = 600;
    static constexpr int kEvents = 64;

    template <class Function>
    static void look_up(void* driver, const char* name, Function& function) {
        function = reinterpret_cast<Function>(dlsym(driver, name));
        REQUIRE_TRUE(function != nullptr);
    }

    int (*current_)(void**) = nullptr;
    int (*record_)(void*, cudaEvent_t) = nullptr;
    int (*query_)(cudaEvent_t) = nullptr;
    int (*wait_)(void*, cudaEvent_t) = nullptr;
    cudaEvent_t events_[kEvents] = {};
    int next_ = 0;
};

} // namespace

int main(int argc, char** argv) {
    const char* const name = app::option(argc, argv, "--way", "malloc");
    const int rounds = app::option(argc, argv, "--rounds", 8);
    const std::uint64_t wait_ns =
        static_cast<std::uint64_t>(app::option(argc, argv, "--wait-ms", 200)) * 1000000;
    const std::size_t bytes = static_cast<std::size_t>(app::option(argc, argv, "--mib", 128)) << 20;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::puts("SKIP late_launch: no GPU");
        return 77;
    }
    cudaStream_t reader = nullptr;
    cudaStream_t writer = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    CUDA_CHECK(cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking));
    unsigned long long* wrong = nullptr;
    CUDA_CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CUDA_CHECK(cudaMemset(wrong, 0, sizeof *wrong));

    Malloc plain;
    std::unique_ptr<Way> other;
    void* block = nullptr;
    if (std::strcmp(name, "async") == 0) {
        other = std::make_unique<Async>(writer);
        CUDA_CHECK(cudaMallocAsync(&block, bytes, writer));
    } else {
        if (std::strcmp(name, "events") == 0) other = std::make_unique<Events>();
        CUDA_CHECK(cudaMalloc(&block, bytes));
    }
    Way& way = other ? *other : plain;
    CUDA_CHECK(cudaDeviceSynchronize());
    // Loads the kernel, which would otherwise happen behind the first timed launch.
    late_reader<<<1, 32, 0, reader>>>(static_cast<unsigned*>(block), 0, 0, 0, wrong);
    CUDA_CHECK(cudaDeviceSynchronize());

    // Round 0 is not reported: there the pool may still grow within its slack.
    for (int round = 0; round <= rounds; ++round) {
        CUDA_CHECK(cudaMemset(block, static_cast<int>(kPattern & 0xff), bytes));
        CUDA_CHECK(cudaDeviceSynchronize());
        late_reader<<<132, 256, 0, reader>>>(static_cast<unsigned*>(block),
                                             bytes / sizeof(unsigned), kPattern, wait_ns, wrong);
        CUDA_CHECK_LAUNCH();
        way.launched(reader);
        double spent[kPairs];
        for (int i = 0; i < kPairs; ++i) {
            const auto begin = std::chrono::steady_clock::now();
            way.pair(block, bytes);
            spent[i] = microseconds_since(begin);
            CUDA_CHECK(cudaMemsetAsync(block, i, bytes, writer));
        }
        CUDA_CHECK(cudaDeviceSynchronize());
        if (round > 0) {
            std::printf("{\"what\": \"late\", \"us\": [%.2f, %.2f, %.2f]}\n", spent[0], spent[1],
                        spent[2]);
        }
    }
    unsigned long long bad = 0;
    CUDA_CHECK(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
    std::printf("{\"what\": \"late_end\", \"bytes\": %zu, \"wrong\": %llu}\n", bytes, bad);
    return bad == 0 ? 0 : 1;
}
