// Host threads in a ring: each allocates buffers, fills them on its own stream and hands them to
// the next thread, which adds them up on its stream and frees them. Every buffer is thus freed by
// a thread that did not allocate it.
//
// stdout: one line, the same wherever it runs.   --threads N (4)   --buffers N (50): per thread
#include "tests/apps/sum_kernels.cuh"

#include <condition_variable>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

namespace {

using app::Sum;
using app::Word;

/// A filled buffer on its way, with the event after which its content is there.
struct Parcel {
    Word* data = nullptr;
    std::size_t words = 0;
    cudaEvent_t filled = nullptr;
};

class Mailbox {
  public:
    void put(const Parcel& parcel) {
        std::lock_guard<std::mutex> lock(mutex_);
        parcels_.push(parcel);
        arrived_.notify_one();
    }

    Parcel take() {
        std::unique_lock<std::mutex> lock(mutex_);
        arrived_.wait(lock, [this] { return !parcels_.empty(); });
        Parcel parcel = parcels_.front();
        parcels_.pop();
        return parcel;
    }

  private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::queue<Parcel> parcels_;
};

// Few sizes, so that buffers freed by one thread are soon handed to another.
std::size_t words_of(int thread, int buffer) {
    return 500 + 9000 * static_cast<std::size_t>((thread + buffer) % 5);
}

Word tag_of(int thread, int buffer) {
    return static_cast<Word>(thread * 1000 + buffer + 1);
}

Parcel make(int thread, int buffer, cudaStream_t stream) {
    Parcel parcel;
    parcel.words = words_of(thread, buffer);
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&parcel.data), parcel.words * sizeof(Word)));
    CUDA_CHECK(cudaEventCreateWithFlags(&parcel.filled, cudaEventDisableTiming));
    fill_words<<<app::kSumGrid, app::kSumBlock, 0, stream>>>(parcel.data, parcel.words,
                                                             tag_of(thread, buffer));
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaEventRecord(parcel.filled, stream));
    return parcel;
}

void use(const Parcel& parcel, Sum* sum, cudaStream_t stream) {
    CUDA_CHECK(cudaStreamWaitEvent(stream, parcel.filled, 0));
    add_words<<<app::kSumGrid, app::kSumBlock, 0, stream>>>(parcel.data, parcel.words, sum);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaEventDestroy(parcel.filled));
    CUDA_CHECK(cudaFree(parcel.data));
}

void work(int thread, int buffers, Mailbox& own, Mailbox& next, Sum& result) {
    cudaStream_t stream = nullptr;
    Sum* sum = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(Sum)));
    CUDA_CHECK(cudaMemsetAsync(sum, 0, sizeof(Sum), stream));
    for (int buffer = 0; buffer < buffers; ++buffer) {
        next.put(make(thread, buffer, stream));
        use(own.take(), sum, stream);
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
    CUDA_CHECK(cudaMemcpy(&result, sum, sizeof(Sum), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(sum));
    CUDA_CHECK(cudaStreamDestroy(stream));
}

} // namespace

int main(int argc, char** argv) {
    int count = app::option(argc, argv, "--threads", 4);
    int buffers = app::option(argc, argv, "--buffers", 50);
    std::vector<Mailbox> mailboxes(static_cast<std::size_t>(count));
    std::vector<Sum> results(mailboxes.size());
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) {
        auto self = static_cast<std::size_t>(t);
        threads.emplace_back(work, t, buffers, std::ref(mailboxes[self]),
                             std::ref(mailboxes[(self + 1) % mailboxes.size()]),
                             std::ref(results[self]));
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    Sum total = 0;
    Sum expected = 0;
    for (int t = 0; t < count; ++t) {
        total += results[static_cast<std::size_t>(t)];
        for (int buffer = 0; buffer < buffers; ++buffer) {
            expected += app::pattern_sum(tag_of(t, buffer), words_of(t, buffer));
        }
    }
    std::printf("threads: %d threads, %d buffers each, checksum %016llx, %s\n", count, buffers,
                total, total == expected ? "right" : "WRONG");
    return total == expected ? 0 : 1;
}
