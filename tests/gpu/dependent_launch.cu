// Programmatic dependent launch: a kernel that may start before its predecessor on the same stream
// has ended. Natively a cudaFree between the two waits, so that the second kernel may write at once
// what cudaMalloc then gives; under a pool the block must be kept from it until the first has
// ended.
//
// First it shows what the driver does (stderr): whether such a kernel really starts early, and
// whether an event wait between the two on that stream prevents it. Then it counts wrong bytes,
// with one blocking stream in the program and with more. stdout: the counts; status 1 if one is not
// zero.
//   --rounds N (20)   --reader-us N (3000)
#include "tests/gpu/late_kernels.cuh"

#include <algorithm>
#include <vector>

namespace {

constexpr unsigned kBlocks = 16;
constexpr unsigned kThreads = 128;

} // namespace

// Lets its dependent start at once, then waits, reads, and notes when it ended.
extern "C" __global__ void early_reader(const volatile unsigned char* data, std::size_t bytes,
                                        std::uint64_t wait_ns, unsigned long long* wrong,
                                        unsigned long long* ended) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    app::spin_ns(wait_ns);
    unsigned long long bad = 0;
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        if (data[i] != late::kBefore) ++bad;
    }
    if (bad != 0) atomicAdd(wrong, bad);
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    atomicMax(ended, now);
}

SIMCUDA_TWIN(early_reader) {
    auto data = simcuda_arg<const unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    auto wait_ns = simcuda_arg<std::uint64_t>(args, 2);
    auto wrong = simcuda_arg<unsigned long long*>(args, 3);
    auto ended = simcuda_arg<unsigned long long*>(args, 4);
    sim->reads(sim, data, bytes);
    sim->writes(sim, wrong, sizeof *wrong);
    sim->writes(sim, ended, sizeof *ended);
    sim->duration_ns(sim, wait_ns);
    simcuda_body(sim, [=] {
        *ended = 1;
        for (std::size_t i = 0; i < bytes; ++i) {
            if (data[i] != late::kBefore) ++*wrong;
        }
    });
}

// Notes when it started and writes, then waits for its predecessor.
extern "C" __global__ void early_writer(unsigned char* data, std::size_t bytes,
                                        unsigned long long* started) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    atomicMin(started, now);
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count())
        data[i] = late::kAfter;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

SIMCUDA_TWIN(early_writer) {
    auto data = simcuda_arg<unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    auto started = simcuda_arg<unsigned long long*>(args, 2);
    sim->writes(sim, data, bytes);
    sim->writes(sim, started, sizeof *started);
    simcuda_body(sim, [=] {
        *started = 2; // here it never starts early
        std::memset(data, late::kAfter, bytes);
    });
}

namespace {

struct Marks {
    unsigned long long wrong;
    unsigned long long ended;
    unsigned long long started;
};

class Launcher {
  public:
    Launcher(cudaStream_t stream, std::uint64_t wait_ns) : stream_(stream), wait_ns_(wait_ns) {
        CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&marks_), sizeof *marks_));
        // Both kernels are loaded before anything is timed.
        unsigned char* scratch = filled(64);
        read(scratch, 0, 0);
        write(scratch, 64);
        (void)take();
        CUDA_CHECK(cudaFree(scratch));
    }
    ~Launcher() { CUDA_CHECK(cudaFree(marks_)); }
    Launcher(const Launcher&) = delete;
    Launcher& operator=(const Launcher&) = delete;

    cudaStream_t stream() const { return stream_; }

    /// A buffer with the old content; the device is idle and the marks are reset afterwards.
    unsigned char* filled(std::size_t bytes) {
        void* data = nullptr;
        CUDA_CHECK(cudaMalloc(&data, bytes));
        CUDA_CHECK(cudaMemset(data, late::kBefore, bytes));
        const Marks none{0, 0, ~0ull};
        CUDA_CHECK(cudaMemcpy(marks_, &none, sizeof none, cudaMemcpyHostToDevice));
        CUDA_CHECK(cudaDeviceSynchronize());
        return static_cast<unsigned char*>(data);
    }

    void read(const unsigned char* data, std::size_t bytes) { read(data, bytes, wait_ns_); }

    /// A dependent launch.
    void write(unsigned char* data, std::size_t bytes) {
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(kBlocks);
        config.blockDim = dim3(kThreads);
        config.stream = stream_;
        config.attrs = &attribute;
        config.numAttrs = 1;
        unsigned long long* started = &marks_->started;
        void* arguments[] = {&data, &bytes, &started};
        CUDA_CHECK(
            cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&early_writer), arguments));
    }

    /// Waits for everything; what the kernels noted.
    Marks take() {
        Marks marks{};
        CUDA_CHECK(cudaDeviceSynchronize());
        CUDA_CHECK(cudaMemcpy(&marks, marks_, sizeof marks, cudaMemcpyDeviceToHost));
        return marks;
    }

  private:
    void read(const unsigned char* data, std::size_t bytes, std::uint64_t wait_ns) {
        early_reader<<<kBlocks, kThreads, 0, stream_>>>(data, bytes, wait_ns, &marks_->wrong,
                                                        &marks_->ended);
        CUDA_CHECK_LAUNCH();
    }

    cudaStream_t stream_;
    std::uint64_t wait_ns_;
    Marks* marks_ = nullptr; // device
};

// What lies between the two kernels of a pair that shares no buffer.
enum class Between { nothing, own_event, other_event };

// Whether the dependent kernel starts before its predecessor has ended.
bool starts_early(Launcher& launcher, Between between) {
    unsigned char* read = launcher.filled(4096);
    unsigned char* written = launcher.filled(4096);
    cudaEvent_t event = nullptr;
    cudaStream_t other = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    launcher.read(read, 4096);
    if (between == Between::own_event) {
        CUDA_CHECK(cudaEventRecord(event, launcher.stream()));
        CUDA_CHECK(cudaStreamWaitEvent(launcher.stream(), event, 0));
    } else if (between == Between::other_event) {
        // Recorded on another stream that waits for nothing: only that there is a wait counts.
        CUDA_CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
        CUDA_CHECK(cudaEventRecord(event, other));
        CUDA_CHECK(cudaStreamWaitEvent(launcher.stream(), event, 0));
    }
    launcher.write(written, 4096);
    const Marks marks = launcher.take();
    CUDA_CHECK(cudaEventDestroy(event));
    if (other != nullptr) CUDA_CHECK(cudaStreamDestroy(other));
    CUDA_CHECK(cudaFree(read));
    CUDA_CHECK(cudaFree(written));
    return marks.started < marks.ended;
}

struct Outcome {
    int reused = 0;
    int cases = 0;
    unsigned long long wrong = 0;
};

// The kernel reads, the buffer is freed, allocated again and written by the dependent kernel.
Outcome free_between(Launcher& launcher, int rounds) {
    Outcome outcome;
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t bytes : {std::size_t{64}, std::size_t{4096}, std::size_t{1} << 20}) {
            unsigned char* old_block = launcher.filled(bytes);
            launcher.read(old_block, bytes);
            CUDA_CHECK(cudaFree(old_block));
            void* again = nullptr;
            CUDA_CHECK(cudaMalloc(&again, bytes));
            launcher.write(static_cast<unsigned char*>(again), bytes);
            outcome.wrong += launcher.take().wrong;
            outcome.reused += again == old_block ? 1 : 0;
            ++outcome.cases;
            CUDA_CHECK(cudaFree(again));
            CUDA_CHECK(cudaDeviceSynchronize());
        }
    }
    return outcome;
}

// The same with memory that a pool may have mapped twice: pieces are freed, one of them still read,
// and wanted back as one block (stitched.cu).
Outcome free_pieces_between(Launcher& launcher, int rounds) {
    constexpr std::size_t kPiece = std::size_t{4} << 20;
    constexpr std::size_t kPieces = 3;
    Outcome outcome;
    std::vector<unsigned char*> posts;
    std::vector<unsigned char*> all;
    for (std::size_t i = 0; i < 2 * kPieces; ++i)
        all.push_back(launcher.filled(kPiece));
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i % 2 == 0) {
            CUDA_CHECK(cudaFree(all[i]));
        } else {
            posts.push_back(all[i]);
        }
    }
    for (int round = 0; round < rounds; ++round) {
        std::vector<unsigned char*> pieces;
        for (std::size_t i = 0; i < kPieces; ++i)
            pieces.push_back(launcher.filled(kPiece));
        launcher.read(pieces.front(), kPiece);
        for (unsigned char* piece : pieces)
            CUDA_CHECK(cudaFree(piece));
        void* again = nullptr;
        CUDA_CHECK(cudaMalloc(&again, kPieces * kPiece));
        launcher.write(static_cast<unsigned char*>(again), kPieces * kPiece);
        outcome.wrong += launcher.take().wrong;
        outcome.reused += again == pieces.front() ? 1 : 0;
        ++outcome.cases;
        CUDA_CHECK(cudaFree(again));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    for (unsigned char* post : posts)
        CUDA_CHECK(cudaFree(post));
    return outcome;
}

unsigned long long report(const char* what, const Outcome& outcome) {
    std::printf("%s: %d cases, %llu bytes wrong\n", what, outcome.cases, outcome.wrong);
    std::fprintf(stderr, "dependent_launch: %s: the address came back in %d of %d cases\n", what,
                 outcome.reused, outcome.cases);
    return outcome.wrong;
}

} // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP dependent_launch: no GPU");
        return 77;
    }
    const int rounds = app::option(argc, argv, "--rounds", 20);
    const auto wait_ns =
        static_cast<std::uint64_t>(app::option(argc, argv, "--reader-us", 3000)) * 1000;
    unsigned long long wrong = 0;
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreate(&stream));
    {
        Launcher launcher(stream, wait_ns);
        // First of all, so that the program has had one blocking stream alone.
        wrong += report("one blocking stream", free_between(launcher, rounds));
        wrong += report("one stream, in pieces", free_pieces_between(launcher, rounds));
    }
    cudaStream_t more = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&more, cudaStreamNonBlocking));
    for (cudaStream_t one : {stream, more}) {
        Launcher launcher(one, wait_ns);
        wrong += report(one == stream ? "blocking stream of several" : "non-blocking stream",
                        free_between(launcher, rounds));
        wrong += report(one == stream ? "blocking stream, in pieces" : "non-blocking, in pieces",
                        free_pieces_between(launcher, rounds));
        std::fprintf(
            stderr,
            "gpu-dependent: {\"stream\": \"%s\", \"early\": %d, \"early_after_own_event\": "
            "%d, \"early_after_other_event\": %d}\n",
            one == stream ? "blocking" : "non-blocking", starts_early(launcher, Between::nothing),
            starts_early(launcher, Between::own_event),
            starts_early(launcher, Between::other_event));
    }
    CUDA_CHECK(cudaStreamDestroy(stream));
    CUDA_CHECK(cudaStreamDestroy(more));
    return wrong == 0 ? 0 : 1;
}
