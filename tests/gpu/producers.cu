// Four producer/consumer streams. Every host thread has a stream of its own: it makes buffers of
// random size, plainly or stream-ordered, fills them by a kernel, a copy or a memset and a kernel,
// and hands them on. The next thread copies each into another buffer, checks both after a while on
// its own stream, and frees both at once, while the check is still queued. Any byte that belongs to
// somebody else is counted.
//
// stdout: "0 bytes wrong" at the end and status 0, or status 1. stderr: what was done.
//   --seconds N (60)   --buffers N (no limit): per thread   --threads N (4)   --seed N (from the
//   clock)
//   --largest BYTES (16777216)   --check-us N (100): how long a check waits before it reads
#include "tests/gpu/tagged.cuh"

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

using tagged::Count;

struct Settings {
    double seconds = 0;
    int buffers = 0;
    std::size_t largest = 0;
    std::uint64_t check_ns = 0;
    unsigned seed = 0;
};

/// A filled buffer on its way, with the event after which its content is there.
struct Parcel {
    unsigned char* data = nullptr;
    std::size_t bytes = 0;
    std::uint32_t tag = 0; // 0 ends the conversation
    bool ordered = false;  // whether cudaMallocAsync gave it
    cudaEvent_t filled = nullptr;
};

class Mailbox {
  public:
    void put(const Parcel& parcel) {
        const std::lock_guard<std::mutex> lock(mutex_);
        parcels_.push_back(parcel);
        changed_.notify_all();
    }

    /// The next parcel; waits for one.
    Parcel take() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !parcels_.empty(); });
        const Parcel parcel = parcels_.front();
        parcels_.pop_front();
        changed_.notify_all();
        return parcel;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Parcel> parcels_;
};

std::atomic<std::uint32_t> next_tag{1};
std::atomic<std::uint64_t> buffers_made{0};
std::atomic<std::uint64_t> bytes_made{0};
std::atomic<std::uint64_t> ordered_made{0};

/// One host thread with its stream.
class Worker {
  public:
    Worker(const Settings& settings, int index)
        : settings_(settings), random_(settings.seed + static_cast<unsigned>(index) * 7919u) {
        // Half of the streams synchronise with the legacy one.
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, index % 2 == 0 ? cudaStreamNonBlocking
                                                                      : cudaStreamDefault));
        CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&wrong_), sizeof *wrong_));
        CUDA_CHECK(cudaMemset(wrong_, 0, sizeof *wrong_));
        CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&pinned_), kPinned));
        CUDA_CHECK(cudaDeviceSynchronize());
    }

    /// Produces and consumes until time or number is up; one parcel is taken for each one put.
    void work(Mailbox& own, Mailbox& next) {
        const double end = app::now_s() + settings_.seconds;
        bool taking = true;
        for (int made = 0; made < settings_.buffers && app::now_s() < end; ++made) {
            next.put(make());
            if (taking) taking = use(own.take());
            // Natively a thread runs ahead of its stream without limit; memory would not follow.
            if (made % 16 == 15) CUDA_CHECK(cudaStreamSynchronize(stream_));
        }
        next.put(Parcel{});
        while (taking)
            taking = use(own.take());
        CUDA_CHECK(cudaStreamSynchronize(stream_));
    }

    Count finish() {
        Count wrong = 0;
        CUDA_CHECK(cudaMemcpy(&wrong, wrong_, sizeof wrong, cudaMemcpyDeviceToHost));
        CUDA_CHECK(cudaFree(wrong_));
        CUDA_CHECK(cudaFreeHost(pinned_));
        CUDA_CHECK(cudaStreamDestroy(stream_));
        return wrong;
    }

  private:
    static constexpr std::size_t kPinned = 1 << 16;

    // From 64 bytes to the largest, each power of two equally often.
    std::size_t size() {
        const double most = std::log2(static_cast<double>(settings_.largest) / 64);
        const double power = std::uniform_real_distribution<double>(0, most)(random_);
        return static_cast<std::size_t>(64 * std::exp2(power));
    }

    bool chance(unsigned one_in) { return random_() % one_in == 0; }

    unsigned char* allocate(std::size_t bytes, bool ordered) {
        void* data = nullptr;
        if (ordered) {
            CUDA_CHECK(cudaMallocAsync(&data, bytes, stream_));
        } else {
            CUDA_CHECK(cudaMalloc(&data, bytes));
        }
        buffers_made += 1;
        bytes_made += bytes;
        ordered_made += ordered ? 1 : 0;
        return static_cast<unsigned char*>(data);
    }

    // A plain pointer may go either way. A stream-ordered one that is in use must not go to
    // cudaFree, which waits for nothing then.
    void release(unsigned char* data, bool ordered) {
        if (ordered || chance(4)) {
            CUDA_CHECK(cudaFreeAsync(data, stream_));
        } else {
            CUDA_CHECK(cudaFree(data));
        }
    }

    Parcel make() {
        Parcel parcel;
        parcel.bytes = size();
        parcel.tag = next_tag.fetch_add(1);
        parcel.ordered = chance(2);
        parcel.data = allocate(parcel.bytes, parcel.ordered);
        if (parcel.bytes <= kPinned && chance(3)) {
            CUDA_CHECK(cudaStreamSynchronize(stream_)); // the last copy out of it has ended
            tagged::fill_bytes(pinned_, parcel.bytes, parcel.tag, 0, 1);
            CUDA_CHECK(cudaMemcpyAsync(parcel.data, pinned_, parcel.bytes, cudaMemcpyHostToDevice,
                                       stream_));
        } else {
            if (chance(3)) CUDA_CHECK(cudaMemsetAsync(parcel.data, 0x5A, parcel.bytes, stream_));
            tagged_fill<<<tagged::kGrid, tagged::kBlock, 0, stream_>>>(parcel.data, parcel.bytes,
                                                                       parcel.tag);
            CUDA_CHECK_LAUNCH();
        }
        CUDA_CHECK(cudaEventCreateWithFlags(&parcel.filled, cudaEventDisableTiming));
        CUDA_CHECK(cudaEventRecord(parcel.filled, stream_));
        return parcel;
    }

    void check(const unsigned char* data, const Parcel& parcel) {
        tagged_check<<<tagged::kGrid, tagged::kBlock, 0, stream_>>>(data, parcel.bytes, parcel.tag,
                                                                    settings_.check_ns, wrong_);
        CUDA_CHECK_LAUNCH();
    }

    /// False at the end of the conversation.
    bool use(const Parcel& parcel) {
        if (parcel.tag == 0) return false;
        CUDA_CHECK(cudaStreamWaitEvent(stream_, parcel.filled, 0));
        CUDA_CHECK(cudaEventDestroy(parcel.filled));
        const bool ordered = chance(2);
        unsigned char* const copy = allocate(parcel.bytes, ordered);
        CUDA_CHECK(
            cudaMemcpyAsync(copy, parcel.data, parcel.bytes, cudaMemcpyDeviceToDevice, stream_));
        check(parcel.data, parcel);
        release(parcel.data, parcel.ordered);
        check(copy, parcel);
        release(copy, ordered);
        return true;
    }

    const Settings& settings_;
    std::mt19937 random_;
    cudaStream_t stream_ = nullptr;
    Count* wrong_ = nullptr;          // device
    unsigned char* pinned_ = nullptr; // kPinned bytes
};

} // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP producers: no GPU");
        return 77;
    }
    const auto clock = static_cast<int>(
        std::chrono::system_clock::now().time_since_epoch().count() / 1000 % 1000000 + 1);
    Settings settings;
    settings.seconds = app::option(argc, argv, "--seconds", 60);
    settings.buffers = app::option(argc, argv, "--buffers", 1000000000);
    settings.largest = static_cast<std::size_t>(app::option(argc, argv, "--largest", 16 << 20));
    settings.check_ns =
        static_cast<std::uint64_t>(app::option(argc, argv, "--check-us", 100)) * 1000;
    settings.seed = static_cast<unsigned>(app::option(argc, argv, "--seed", clock));
    const int count = app::option(argc, argv, "--threads", 4);

    std::vector<Worker> workers;
    for (int i = 0; i < count; ++i)
        workers.emplace_back(settings, i);
    std::vector<Mailbox> mailboxes(workers.size());
    std::vector<std::thread> threads;
    const double begin = app::now_s();
    for (std::size_t i = 0; i < workers.size(); ++i) {
        threads.emplace_back([&workers, &mailboxes, i] {
            workers[i].work(mailboxes[i], mailboxes[(i + 1) % mailboxes.size()]);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    const double seconds = app::now_s() - begin;
    Count wrong = 0;
    for (Worker& worker : workers)
        wrong += worker.finish();
    CUDA_CHECK(cudaDeviceSynchronize());
    std::fprintf(stderr,
                 "gpu-producers: {\"seconds\": %.1f, \"seed\": %u, \"buffers\": %llu, "
                 "\"stream_ordered\": %llu, \"mib\": %llu, \"wrong\": %llu}\n",
                 seconds, settings.seed, static_cast<Count>(buffers_made),
                 static_cast<Count>(ordered_made), static_cast<Count>(bytes_made >> 20), wrong);
    std::printf("producers: %llu bytes wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}
