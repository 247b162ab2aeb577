// Replays a recorded trace of allocations on its streams, with kernels that check their inputs:
// each buffer is filled by a kernel of its stream when it is allocated, checked by a later one of
// the same stream when the trace frees it, and freed while that check is still queued.
//
//   replay_trace FILE [--async] [--rounds N (3)] [--check-us N (200)] [--most N (all)]
// FILE is plain CSV with the header op,id,bytes,stream,us,site: `a` allocates, `f` frees an id.
// With
// --async the calls are the stream-ordered ones. stdout: what was replayed and "0 bytes wrong";
// status 1 if a byte was. Stream 0 is the legacy stream, each other one a non-blocking stream.
#include "tests/gpu/tagged.cuh"

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

struct Event {
    bool allocates = false;
    long id = 0;
    std::size_t bytes = 0;
    int stream = 0;
};

// Reads "op,id,bytes,stream,..." lines; ends the program where there is another one.
std::vector<Event> read_trace(const char* path) {
    std::ifstream file(path);
    std::vector<Event> events;
    std::string line;
    std::getline(file, line); // the header
    while (std::getline(file, line)) {
        Event event;
        char op = 0;
        unsigned long long bytes = 0;
        const int found =
            std::sscanf(line.c_str(), "%c,%ld,%llu,%d", &op, &event.id, &bytes, &event.stream);
        event.allocates = op == 'a';
        event.bytes = bytes;
        if ((op != 'a' && op != 'f') || found < (event.allocates ? 4 : 2)) {
            std::fprintf(stderr, "replay_trace: not understood: %s\n", line.c_str());
            std::exit(2);
        }
        events.push_back(event);
    }
    return events;
}

struct Buffer {
    unsigned char* data = nullptr;
    std::size_t bytes = 0;
    std::uint32_t tag = 0;
    cudaStream_t stream = nullptr;
};

class Replay {
  public:
    Replay(bool ordered, std::uint64_t check_ns) : ordered_(ordered), check_ns_(check_ns) {
        CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&wrong_), sizeof *wrong_));
        CUDA_CHECK(cudaMemset(wrong_, 0, sizeof *wrong_));
        CUDA_CHECK(cudaDeviceSynchronize());
    }

    void play(const std::vector<Event>& events, std::size_t most) {
        for (std::size_t i = 0; i < events.size() && i < most; ++i) {
            const Event& event = events[i];
            if (event.allocates) {
                allocate(event);
            } else if (live_.count(event.id) != 0) { // its allocation may precede the trace
                release(live_.find(event.id));
            }
        }
        // A trace is cut in the middle of a run: some ids are never freed.
        while (!live_.empty())
            release(live_.begin());
    }

    tagged::Count finish() {
        tagged::Count wrong = 0;
        CUDA_CHECK(cudaDeviceSynchronize());
        CUDA_CHECK(cudaMemcpy(&wrong, wrong_, sizeof wrong, cudaMemcpyDeviceToHost));
        CUDA_CHECK(cudaFree(wrong_));
        for (const auto& entry : streams_) {
            if (entry.second != nullptr) CUDA_CHECK(cudaStreamDestroy(entry.second));
        }
        return wrong;
    }

    std::size_t allocations() const { return allocations_; }
    std::size_t streams() const { return streams_.size(); }

  private:
    cudaStream_t stream_of(int number) {
        const auto found = streams_.find(number);
        if (found != streams_.end()) return found->second;
        cudaStream_t stream = nullptr;
        if (number != 0) CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return streams_[number] = stream;
    }

    void allocate(const Event& event) {
        Buffer buffer;
        buffer.bytes = event.bytes;
        buffer.stream = stream_of(event.stream);
        buffer.tag = static_cast<std::uint32_t>(++allocations_);
        void* data = nullptr;
        if (ordered_) {
            CUDA_CHECK(cudaMallocAsync(&data, event.bytes, buffer.stream));
        } else {
            CUDA_CHECK(cudaMalloc(&data, event.bytes));
        }
        buffer.data = static_cast<unsigned char*>(data);
        tagged_fill<<<tagged::kGrid, tagged::kBlock, 0, buffer.stream>>>(buffer.data, buffer.bytes,
                                                                         buffer.tag);
        CUDA_CHECK_LAUNCH();
        live_[event.id] = buffer;
    }

    void release(std::map<long, Buffer>::iterator at) {
        const Buffer buffer = at->second;
        live_.erase(at);
        tagged_check<<<tagged::kGrid, tagged::kBlock, 0, buffer.stream>>>(
            buffer.data, buffer.bytes, buffer.tag, check_ns_, wrong_);
        CUDA_CHECK_LAUNCH();
        if (ordered_) {
            CUDA_CHECK(cudaFreeAsync(buffer.data, buffer.stream));
        } else {
            CUDA_CHECK(cudaFree(buffer.data));
        }
    }

    bool ordered_;
    std::uint64_t check_ns_;
    tagged::Count* wrong_ = nullptr; // device
    std::map<int, cudaStream_t> streams_;
    std::map<long, Buffer> live_;
    std::size_t allocations_ = 0;
};

} // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP replay_trace: no GPU");
        return 77;
    }
    if (argc < 2) {
        std::fputs("usage: replay_trace FILE [--async] [--rounds N] [--check-us N] [--most N]\n",
                   stderr);
        return 2;
    }
    const std::vector<Event> events = read_trace(argv[1]);
    REQUIRE_TRUE(!events.empty());
    const int rounds = app::option(argc, argv, "--rounds", 3);
    const auto most = static_cast<std::size_t>(app::option(argc, argv, "--most", 1000000000));
    const auto check_us = static_cast<std::uint64_t>(app::option(argc, argv, "--check-us", 200));
    Replay replay(app::flag(argc, argv, "--async"), check_us * 1000);
    const double begin = app::now_s();
    for (int round = 0; round < rounds; ++round)
        replay.play(events, most);
    CUDA_CHECK(cudaDeviceSynchronize());
    const double seconds = app::now_s() - begin;
    const std::size_t streams = replay.streams();
    const tagged::Count wrong = replay.finish();
    std::printf("replay_trace: %zu allocations on %zu streams, %llu bytes wrong\n",
                replay.allocations(), streams, wrong);
    std::fprintf(stderr, "gpu-time: {\"unit\": \"ms\", \"median\": %.2f}\n", seconds * 1e3);
    return wrong == 0 ? 0 : 1;
}
