// Memory that a pool may have mapped twice: blocks freed one by one are handed out as one large
// block, and the other way round, at other addresses but with the same memory behind them.
//
// A comb is allocated, pieces that stay (posts) between pieces that come and go (teeth). With no
// room to grow, a pool of growable memory must serve a request of all teeth together from their
// pages. First the content: kernels, copies and memsets of every shape through such a block. Then a
// kernel reads the teeth late while they are freed, handed out as one block and overwritten in
// every way that CUDA offers (late_ways.cuh), or reads the one block while the teeth are
// overwritten. No byte may differ.
//
// stdout: bytes that came out wrong; status 1 if any did. stderr: in how many cases the new memory
// really was the old one at another address. That is looked up through the freed addresses
// (--peek), which a pool of growable memory leaves mapped; without a pool it must not be asked for.
//   --tooth-kib N (4096)   --teeth N (3)   --reader-us N (1500)   --mix N (all)   --peek
#include "tests/gpu/late_bench.cuh"
#include "tests/gpu/tagged.cuh"

#include <algorithm>
#include <string>

namespace late {
namespace {

struct Part {
    unsigned char* data = nullptr;
    std::size_t bytes = 0;
};

/// The sizes of what is read late and of what is written afterwards.
struct Direction {
    const char* name;
    std::vector<std::size_t> before;
    std::vector<std::size_t> after;
};

struct Comb {
    std::size_t tooth;
    std::size_t count;
    std::vector<unsigned char*> posts;

    std::size_t together() const { return tooth * count; }

    /// Leaves holes of one tooth each between the posts, whatever the pool had free before.
    Comb(std::size_t bytes, std::size_t teeth) : tooth(bytes), count(teeth) {
        std::vector<unsigned char*> all(2 * teeth);
        for (unsigned char*& one : all)
            check(cudaMalloc(&one, bytes), "cudaMalloc");
        std::sort(all.begin(), all.end());
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (i % 2 == 0) {
                check(cudaFree(all[i]), "cudaFree");
            } else {
                posts.push_back(all[i]);
            }
        }
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
};

/// Counts bytes of `bytes` host bytes that are not the tag's.
unsigned long long wrong_on_host(const std::vector<unsigned char>& host, std::uint32_t tag) {
    return tagged::wrong_bytes(host.data(), host.size(), tag, 0, 1);
}

/// Everything that reads or writes a block crosses its inner seams. Returns the bytes that differ.
class Content {
  public:
    /// Before the comb is made: what it allocates stays to the end and leaves no room.
    explicit Content(std::size_t bytes) : bytes_(bytes), host_(bytes) {
        check(cudaMalloc(&other_, bytes), "cudaMalloc");
        check(cudaMalloc(&wrong_, sizeof *wrong_), "cudaMalloc");
        check(cudaMemset(wrong_, 0, sizeof *wrong_), "cudaMemset");
    }
    ~Content() {
        check(cudaFree(wrong_), "cudaFree");
        check(cudaFree(other_), "cudaFree");
    }
    Content(const Content&) = delete;
    Content& operator=(const Content&) = delete;

    unsigned long long run(unsigned char* data) {
        unsigned char* const other = other_;
        unsigned long long bad = 0;
        fill(data, 1);
        bad += to_host(data, 1); // kernel -> copy to the host
        fill_host(2);
        check(cudaMemcpy(data, host_.data(), bytes_, cudaMemcpyHostToDevice), "to the device");
        bad += on_device(data, 2); // copy from the host -> kernel
        check(cudaMemcpy(other, data, bytes_, cudaMemcpyDeviceToDevice), "on the device");
        bad += on_device(other, 2); // copy out
        fill(other, 3);
        check(cudaMemcpyAsync(data, other, bytes_, cudaMemcpyDefault, nullptr), "on the device");
        bad += to_host(data, 3); // copy in
        bad += in_two_dimensions(data, other);
        bad += within(data);
        bad += memsets(data);
        return bad;
    }

  private:
    void fill(unsigned char* data, std::uint32_t tag) {
        tagged_fill<<<tagged::kGrid, tagged::kBlock>>>(data, bytes_, tag);
        check(cudaGetLastError(), "launch");
    }
    void fill_host(std::uint32_t tag) { tagged::fill_bytes(host_.data(), bytes_, tag, 0, 1); }

    unsigned long long on_device(unsigned char* data, std::uint32_t tag) {
        tagged::Count before = 0;
        tagged::Count now = 0;
        check(cudaMemcpy(&before, wrong_, sizeof before, cudaMemcpyDeviceToHost), "cudaMemcpy");
        tagged_check<<<tagged::kGrid, tagged::kBlock>>>(data, bytes_, tag, 0, wrong_);
        check(cudaGetLastError(), "launch");
        check(cudaDeviceSynchronize(), "check");
        check(cudaMemcpy(&now, wrong_, sizeof now, cudaMemcpyDeviceToHost), "cudaMemcpy");
        return now - before;
    }
    unsigned long long to_host(unsigned char* data, std::uint32_t tag) {
        std::fill(host_.begin(), host_.end(), static_cast<unsigned char>(0));
        check(cudaMemcpy(host_.data(), data, bytes_, cudaMemcpyDeviceToHost), "to the host");
        return wrong_on_host(host_, tag);
    }

    // Rows that do not divide a page, through both a pitched copy in and one out.
    unsigned long long in_two_dimensions(unsigned char* data, unsigned char* other) {
        const std::size_t width = 3 << 10;
        const std::size_t rows = bytes_ / width;
        fill(data, 4);
        fill(other, 4);
        fill_host(5);
        check(
            cudaMemcpy2D(data, width, host_.data(), width, width - 8, rows, cudaMemcpyHostToDevice),
            "cudaMemcpy2D");
        check(cudaMemcpy2D(other, width, data, width, width - 8, rows, cudaMemcpyDeviceToDevice),
              "cudaMemcpy2D");
        std::vector<unsigned char> expected(bytes_);
        tagged::fill_bytes(expected.data(), bytes_, 4, 0, 1);
        for (std::size_t row = 0; row < rows; ++row)
            std::memcpy(&expected[row * width], &host_[row * width], width - 8);
        return differs(data, expected) + differs(other, expected);
    }

    // The first half to the second.
    unsigned long long within(unsigned char* data) {
        const std::size_t half = bytes_ / 2;
        fill(data, 6);
        check(cudaMemcpy(data + half, data, half, cudaMemcpyDeviceToDevice), "cudaMemcpy");
        std::vector<unsigned char> expected(bytes_);
        tagged::fill_bytes(expected.data(), bytes_, 6, 0, 1);
        std::copy_n(expected.begin(), half, expected.begin() + static_cast<std::ptrdiff_t>(half));
        return differs(data, expected);
    }

    unsigned long long memsets(unsigned char* data) {
        fill(data, 7);
        check(cudaMemset(data + 100, kAfter, bytes_ - 200), "cudaMemset");
        std::vector<unsigned char> expected(bytes_);
        tagged::fill_bytes(expected.data(), bytes_, 7, 0, 1);
        std::memset(&expected[100], kAfter, bytes_ - 200);
        return differs(data, expected);
    }

    unsigned long long differs(unsigned char* data, const std::vector<unsigned char>& expected) {
        check(cudaMemcpy(host_.data(), data, bytes_, cudaMemcpyDeviceToHost), "to the host");
        unsigned long long bad = 0;
        for (std::size_t i = 0; i < bytes_; ++i)
            bad += host_[i] != expected[i] ? 1 : 0;
        return bad;
    }

    std::size_t bytes_;
    unsigned char* other_ = nullptr; // device
    std::vector<unsigned char> host_;
    tagged::Count* wrong_ = nullptr; // device
};

std::vector<Part> parts(bool ordered, const std::vector<std::size_t>& sizes, cudaStream_t stream) {
    std::vector<Part> all;
    for (std::size_t bytes : sizes)
        all.push_back({allocate(ordered, bytes, stream), bytes});
    return all;
}

/// Adds to `*wrong` the bytes that are not `expected`; the first kernel waits.
void read(const std::vector<Part>& all, unsigned char expected, std::uint64_t wait_ns,
          unsigned long long* wrong, cudaStream_t stream) {
    for (const Part& part : all) {
        read_late<<<64, 256, 0, stream>>>(part.data, part.bytes, expected, wait_ns, wrong);
        check(cudaGetLastError(), "launch");
        wait_ns = 0;
    }
}

/// Whether the old addresses hold what was written through the new ones, none of which they are.
bool same_memory(Bench& bench, const std::vector<Part>& before, const std::vector<Part>& after) {
    for (const Part& one : after) {
        for (const Part& old : before) {
            if (old.data < one.data + one.bytes && one.data < old.data + old.bytes) return false;
        }
    }
    unsigned long long others = 0;
    check(cudaMemset(bench.wrong, 0, sizeof *bench.wrong), "cudaMemset");
    read(before, kAfter, 0, bench.wrong, nullptr);
    check(cudaMemcpy(&others, bench.wrong, sizeof others, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return others == 0;
}

Result run(Bench& bench, const Way& way, int reader, const Mix& mix, const Direction& direction,
           bool peek) {
    cudaStream_t read_on = bench.readers[reader];
    std::vector<Part> before = parts(mix.old_ordered, direction.before, read_on);
    check(cudaStreamSynchronize(read_on), "cudaStreamSynchronize");
    for (const Part& part : before)
        check(cudaMemset(part.data, kBefore, part.bytes), "cudaMemset");
    check(cudaMemset(bench.wrong, 0, 2 * sizeof *bench.wrong), "cudaMemset");
    check(cudaDeviceSynchronize(), "fill");

    read(before, kBefore, bench.wait_ns, bench.wrong, read_on);
    for (const Part& part : before)
        check(mix.free_ordered ? cudaFreeAsync(part.data, read_on) : cudaFree(part.data), "free");
    std::vector<Part> after;
    // A plain allocation comes before a fresh stream, so that the stream is younger than it.
    if (!mix.new_ordered) after = parts(false, direction.after, nullptr);
    at(bench.tools, way.place, [&](cudaStream_t stream) {
        if (mix.new_ordered) after = parts(true, direction.after, stream);
        for (const Part& part : after) {
            check(way.operation.write(bench.tools, part.data, part.bytes, stream),
                  way.operation.name);
        }
    });
    check(cudaDeviceSynchronize(), "drain");

    read(after, kAfter, 0, bench.wrong + 1, nullptr);
    unsigned long long wrong[2] = {};
    check(cudaMemcpy(wrong, bench.wrong, sizeof wrong, cudaMemcpyDeviceToHost), "cudaMemcpy");
    Result result;
    result.misread = wrong[0];
    result.lost = wrong[1];
    result.reused = peek && same_memory(bench, before, after);
    for (const Part& part : after)
        release(mix.new_ordered, part.data);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return result;
}

// Returns how many cases corrupted something.
int run_direction(Bench& bench, std::vector<Way>& ways, int mix, const Direction& direction,
                  bool peek) {
    Tally tally;
    std::size_t turn = static_cast<std::size_t>(mix);
    for (Way& way : ways) {
        const auto reader = static_cast<int>(turn++ % 4);
        const Result result = run(bench, way, reader, kMixes[mix], direction, peek);
        count(tally, natively_ordered(kReaders[reader], way.place), result);
        if (result.misread == 0 && result.lost == 0) continue;
        if (++way.wrong > 3) continue; // the first ones say enough
        std::printf("%s, %s, reader %s, %s, %s: %llu misread, %llu lost\n", way.operation.name,
                    name_of(way.place), name_of(kReaders[reader]), kMixes[mix].name, direction.name,
                    result.misread, result.lost);
    }
    std::fprintf(stderr,
                 "gpu-stitched-%d-%s: {\"cases\": %d, \"aliased\": %d, \"unordered\": %d, "
                 "\"unordered_corrupted\": %d, \"corrupted\": %d}\n",
                 mix, direction.name, tally.cases, tally.reused, tally.unordered,
                 tally.unordered_corrupted, tally.corrupted);
    return tally.corrupted;
}

} // namespace
} // namespace late

int main(int argc, char** argv) {
    using namespace late;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP stitched: no GPU");
        return 77;
    }
    const auto tooth = static_cast<std::size_t>(app::option(argc, argv, "--tooth-kib", 4096)) << 10;
    const auto teeth = static_cast<std::size_t>(app::option(argc, argv, "--teeth", 3));
    const char* const mix = app::option(argc, argv, "--mix", "all"); // or a number from 1 on
    const int only_mix = std::strcmp(mix, "all") == 0 ? -1 : std::atoi(mix) - 1;
    const bool peek = app::flag(argc, argv, "--peek");

    Bench bench(tooth * teeth);
    bench.wait_ns = static_cast<std::uint64_t>(app::option(argc, argv, "--reader-us", 1500)) * 1000;
    std::vector<Way> ways = all_ways(bench);
    Content content(tooth * teeth);
    const Comb comb(tooth, teeth);
    unsigned char* block = allocate(false, comb.together(), nullptr);
    const unsigned long long bad = content.run(block);
    release(false, block);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::printf("content: %llu bytes wrong\n", bad);

    const std::vector<std::size_t> apart(teeth, tooth);
    const Direction directions[] = {{"together", apart, {comb.together()}},
                                    {"apart", {comb.together()}, apart}};
    int corrupted = 0;
    for (int m = 0; m < kMixCount; ++m) {
        if (only_mix >= 0 && only_mix != m) continue;
        for (const Direction& direction : directions)
            corrupted += run_direction(bench, ways, m, direction, peek);
    }
    std::printf("%d corrupted\n", corrupted);
    return bad == 0 && corrupted == 0 ? 0 : 1;
}
