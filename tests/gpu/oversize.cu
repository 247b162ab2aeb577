// Requests of 1.5 and 1.8 units take turns until some 8 units are cached, on a device that is full
// otherwise; then 2 units are wanted, more than any of them. Twice: with the cached memory wholly
// free, and with a small live block in front of each, so that none of it can be given back whole.
//
// stdout: what the content of all live blocks came to. stderr: whether each request was served.
// Status 1 only where bytes were wrong, or a call failed with anything but out of memory.
//   --unit-mib N (1024)
#include "tests/gpu/tagged.cuh"

#include <vector>

namespace {

class Device {
  public:
    Device() { CUDA_CHECK(cudaMalloc(&wrong_, sizeof *wrong_)); }
    ~Device() { CUDA_CHECK(cudaFree(wrong_)); }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    /// A block filled with its number's pattern, or null where the device has no memory left.
    unsigned char* take(std::size_t bytes) {
        void* data = nullptr;
        const cudaError_t status = cudaMalloc(&data, bytes);
        if (status == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();
            return nullptr;
        }
        CUDA_CHECK(status);
        const auto tag = static_cast<std::uint32_t>(blocks_.size());
        blocks_.push_back({static_cast<unsigned char*>(data), bytes});
        tagged_fill<<<tagged::kGrid, tagged::kBlock>>>(blocks_.back().data, bytes, tag);
        CUDA_CHECK_LAUNCH();
        return blocks_.back().data;
    }

    void give(unsigned char* data) {
        for (Block& block : blocks_) {
            if (block.data == data) {
                CUDA_CHECK(cudaFree(data));
                block.data = nullptr;
            }
        }
    }

    /// Bytes of live blocks that are not what was written to them.
    tagged::Count wrong() {
        CUDA_CHECK(cudaMemset(wrong_, 0, sizeof *wrong_));
        for (std::size_t tag = 0; tag < blocks_.size(); ++tag) {
            if (blocks_[tag].data == nullptr) continue;
            tagged_check<<<tagged::kGrid, tagged::kBlock>>>(
                blocks_[tag].data, blocks_[tag].bytes, static_cast<std::uint32_t>(tag), 0, wrong_);
            CUDA_CHECK_LAUNCH();
        }
        tagged::Count wrong = 0;
        CUDA_CHECK(cudaMemcpy(&wrong, wrong_, sizeof wrong, cudaMemcpyDeviceToHost));
        return wrong;
    }

    void give_all() {
        for (const Block& block : std::vector<Block>(blocks_))
            if (block.data != nullptr) give(block.data);
        CUDA_CHECK(cudaDeviceSynchronize());
    }

  private:
    struct Block {
        unsigned char* data;
        std::size_t bytes;
    };
    std::vector<Block> blocks_; // index: the tag
    tagged::Count* wrong_ = nullptr;
};

std::size_t free_mib() {
    std::size_t free = 0;
    std::size_t total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free >> 20;
}

// Returns the bytes that came out wrong.
tagged::Count run(const char* name, std::size_t unit, bool held) {
    Device device;
    const std::size_t sizes[] = {unit / 2 * 3, unit / 10 * 18};
    // One after the other first: whatever a pool makes of sizes that take turns.
    for (int i = 0; i < 4; ++i)
        device.give(device.take(sizes[i % 2]));
    std::vector<unsigned char*> cached;
    for (int i = 0; i < 5; ++i)
        cached.push_back(device.take(sizes[i % 2]));
    for (std::size_t bytes = unit; bytes >= unit / 32; bytes /= 2) {
        while (device.take(bytes) != nullptr) {
        }
    }
    for (unsigned char* block : cached)
        device.give(block);
    CUDA_CHECK(cudaDeviceSynchronize());
    // Natively these may lie anywhere; a pool puts them into what it has just got back.
    for (int i = 0; held && i < 5; ++i) {
        unsigned char* half = device.take(sizes[i % 2] / 16 * 15);
        unsigned char* small = device.take(unit / 16);
        cached[static_cast<std::size_t>(i)] = half;
        if (half == nullptr || small == nullptr) std::fprintf(stderr, "oversize: no small block\n");
    }
    for (std::size_t i = 0; held && i < cached.size(); ++i) {
        if (cached[i] != nullptr) device.give(cached[i]);
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    const std::size_t before = free_mib();
    const double begin = app::now_s();
    unsigned char* wanted = device.take(2 * unit);
    const double took = app::now_s() - begin;
    const tagged::Count wrong = device.wrong();
    std::fprintf(stderr,
                 "gpu-oversize-%s: {\"served\": %s, \"ms\": %.2f, \"free_mib_before\": %zu, "
                 "\"free_mib_after\": %zu}\n",
                 name, wanted != nullptr ? "true" : "false", took * 1e3, before, free_mib());
    device.give_all();
    return wrong;
}

} // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP oversize: no GPU");
        return 77;
    }
    const auto unit = static_cast<std::size_t>(app::option(argc, argv, "--unit-mib", 1024)) << 20;
    const tagged::Count whole = run("whole", unit, false);
    const tagged::Count held = run("held", unit, true);
    std::printf("%llu bytes wrong\n", whole + held);
    return whole + held == 0 ? 0 : 1;
}
