// Allocates and frees on one thread, at random, as a program with phases does: to be recorded.
//   replay_app plain SEED       cuMemAlloc and cuMemFree
//   replay_app stream SEED      cuMemAllocAsync and cuMemFreeAsync on one stream
//   replay_app mixed SEED       both on the legacy stream, either kind freed either way
//   replay_app beside SEED      the same, but the stream-ordered calls on a stream of their own
//   replay_app threads SEED     plain, on three threads
//   replay_app full SEED        plain, until the device has no more, over and over
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(CUresult result) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "replay_app: error %d\n", static_cast<int>(result));
    std::exit(1);
}

enum class Calls { plain, stream, mixed };

class Churn {
  public:
    Churn(Calls calls, CUstream stream, unsigned seed)
        : calls_(calls), stream_(stream), random_(seed) {}

    // A few sizes come again and again, others once; now and then most of it is freed.
    void run(unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            if (live_.size() > 150 || (!live_.empty() && random_() % 5 < 2)) free_one();
            if (i % 400 == 399) {
                while (live_.size() > 20)
                    free_one();
            }
            allocate(random_() % 4 == 0 ? random_() % (std::size_t{6} << 20) + 1
                                        : std::size_t{700} << (random_() % 12));
        }
        while (!live_.empty())
            free_one();
    }

    // Sizes differ from round to round, so that what is cached has to go back first.
    void fill(unsigned rounds) {
        for (unsigned i = 0; i < rounds; ++i) {
            CUdeviceptr memory = 0;
            while (cuMemAlloc(&memory, (random_() % 200 + 1) << 20) == CUDA_SUCCESS)
                live_.push_back(memory);
            for (std::size_t left = live_.size() / 4; live_.size() > left;)
                free_one();
        }
        while (!live_.empty())
            free_one();
    }

  private:
    bool on_stream() {
        return calls_ == Calls::stream || (calls_ == Calls::mixed && random_() % 2);
    }

    void allocate(std::size_t bytes) {
        CUdeviceptr memory = 0;
        check(on_stream() ? cuMemAllocAsync(&memory, bytes, stream_) : cuMemAlloc(&memory, bytes));
        live_.push_back(memory);
    }

    void free_one() {
        const std::size_t victim = random_() % live_.size();
        check(on_stream() ? cuMemFreeAsync(live_[victim], stream_) : cuMemFree(live_[victim]));
        live_[victim] = live_.back();
        live_.pop_back();
    }

    const Calls calls_;
    const CUstream stream_;
    std::mt19937 random_;
    std::vector<CUdeviceptr> live_;
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::string how = argv[1];
    const auto seed = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
    check(cuInit(0));
    CUcontext context = nullptr;
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    if (how == "stream" || how == "beside") check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (how == "threads") {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 3; ++i) {
            threads.emplace_back([=] {
                check(cuCtxSetCurrent(context));
                Churn(Calls::plain, nullptr, seed + i).run(1500);
            });
        }
        for (std::thread& thread : threads)
            thread.join();
        return 0;
    }
    if (how == "full") {
        Churn(Calls::plain, nullptr, seed).fill(8);
        return 0;
    }
    const Calls calls = how == "plain"    ? Calls::plain
                        : how == "stream" ? Calls::stream
                                          : Calls::mixed;
    Churn(calls, stream, seed).run(3000);
    return 0;
}
