// A kernel reads a buffer late, while the buffer is freed, handed out again and overwritten in
// every way that CUDA offers. No byte the kernel reads may differ.
//
// Natively cudaFree waits for the kernel, and the stream-ordered calls order the next owner's
// stream behind it, so nothing can go wrong; a pool that hands the block out at once must see to it
// that each of these writers comes after the kernel. Every way of writing (late_ways.cuh) meets
// every kind of stream that the reader may be on and every mix of plain and stream-ordered calls;
// the sizes take turns, or all are tried (--sizes all).
//
// stdout: one line per way of writing with what it corrupted; status 1 if anything was. stderr: how
// often the freed address really came back (a case where it did not proves nothing), and how many
// of those cases nothing but the allocator orders.
//   --sizes turns|all (turns)   --largest BYTES (16777216)   --reader-us N (1500)   --mix N (all)
#include "tests/gpu/late_bench.cuh"

#include <algorithm>

namespace late {
namespace {

// Allocates until `wanted` comes back, while the reader still waits. Returns the block to write to:
// `wanted`, or the last one tried. (The driver's own pools never hand a block of one kind to a call
// of the other; its blocks are not kept.)
unsigned char* allocate_until(const void* wanted, const Mix& mix, std::size_t bytes,
                              cudaStream_t stream, Bench& bench) {
    std::vector<unsigned char*>& kept =
        mix.new_ordered ? bench.ordered_fillers : bench.plain_fillers;
    const std::size_t most = (std::size_t{1} << 30) / bytes;
    const double end = app::now_s() + 0.6e-9 * static_cast<double>(bench.wait_ns);
    for (;;) {
        unsigned char* block = allocate(mix.new_ordered, bytes, stream);
        if (block == wanted || app::now_s() > end || kept.size() >= most) return block;
        kept.push_back(block);
    }
}

void release_fillers(Bench& bench) {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (unsigned char* block : bench.plain_fillers)
        release(false, block);
    for (unsigned char* block : bench.ordered_fillers)
        release(true, block);
    bench.plain_fillers.clear();
    bench.ordered_fillers.clear();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Result run(Bench& bench, const Operation& operation, Place writer, int reader, const Mix& mix,
           std::size_t bytes) {
    cudaStream_t read_on = bench.readers[reader];
    unsigned char* old_block = allocate(mix.old_ordered, bytes, read_on);
    check(cudaStreamSynchronize(read_on), "cudaStreamSynchronize");
    check(cudaMemset(old_block, kBefore, bytes), "cudaMemset");
    check(cudaMemset(bench.wrong, 0, 2 * sizeof *bench.wrong), "cudaMemset");
    check(cudaDeviceSynchronize(), "fill");

    read_late<<<64, 256, 0, read_on>>>(old_block, bytes, kBefore, bench.wait_ns, bench.wrong);
    check(cudaGetLastError(), "launch");
    check(mix.free_ordered ? cudaFreeAsync(old_block, read_on) : cudaFree(old_block), "free");
    unsigned char* again = nullptr;
    // A plain allocation comes before a fresh stream, so that the stream is younger than it.
    if (!mix.new_ordered) {
        again = allocate_until(old_block, mix, bytes, nullptr, bench);
    }
    at(bench.tools, writer, [&](cudaStream_t stream) {
        if (mix.new_ordered) {
            again = allocate_until(old_block, mix, bytes, stream, bench);
        }
        check(operation.write(bench.tools, again, bytes, stream), operation.name);
    });
    check(cudaDeviceSynchronize(), "drain");

    Result result;
    result.reused = again == old_block;
    read_late<<<64, 256>>>(again, bytes, kAfter, 0, bench.wrong + 1);
    check(cudaGetLastError(), "launch");
    unsigned long long wrong[2] = {};
    check(cudaMemcpy(wrong, bench.wrong, sizeof wrong, cudaMemcpyDeviceToHost), "cudaMemcpy");
    result.misread = wrong[0];
    result.lost = wrong[1];
    release(mix.new_ordered, again);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return result;
}

void run_case(Bench& bench, Way& way, int reader, int mix, std::size_t bytes, Tally& tally) {
    const Result result = run(bench, way.operation, way.place, reader, kMixes[mix], bytes);
    count(tally, natively_ordered(kReaders[reader], way.place), result);
    ++way.cases;
    if (result.misread == 0 && result.lost == 0) return;
    if (++way.wrong > 3) return; // the first ones say enough
    std::printf("%s, %s, reader %s, %s, %zu bytes: %llu misread, %llu lost\n", way.operation.name,
                name_of(way.place), name_of(kReaders[reader]), kMixes[mix].name, bytes,
                result.misread, result.lost);
}

} // namespace
} // namespace late

int main(int argc, char** argv) {
    using namespace late;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP late_writers: no GPU");
        return 77;
    }
    const bool all_sizes = std::strcmp(app::option(argc, argv, "--sizes", "turns"), "all") == 0;
    const auto largest = static_cast<std::size_t>(app::option(argc, argv, "--largest", 16 << 20));
    const char* const mix = app::option(argc, argv, "--mix", "all"); // or a number from 1 on
    const int only_mix = std::strcmp(mix, "all") == 0 ? -1 : std::atoi(mix) - 1;
    std::vector<std::size_t> sizes = {64, 4096, 1 << 20, 16 << 20};
    for (std::size_t& size : sizes)
        size = std::min(size, largest);
    Bench bench(sizes.back());
    bench.wait_ns = static_cast<std::uint64_t>(app::option(argc, argv, "--reader-us", 1500)) * 1000;

    Tally tallies[kMixCount];
    std::vector<Way> ways = all_ways(bench);
    for (int m = 0; m < kMixCount; ++m) {
        if (only_mix >= 0 && only_mix != m) continue;
        for (std::size_t s = 0; s < sizes.size(); ++s) {
            // One of 4 sizes for each of 4 readers, another one for the next way and the next mix.
            std::size_t turn = s + static_cast<std::size_t>(m);
            for (Way& way : ways) {
                ++turn;
                for (std::size_t reader = 0; reader < 4; ++reader) {
                    if (!all_sizes && (turn + reader) % sizes.size() != 0) continue;
                    run_case(bench, way, static_cast<int>(reader), m, sizes[s], tallies[m]);
                }
            }
            release_fillers(bench);
        }
    }
    for (const Way& way : ways) {
        std::printf("%-26s %-12s: %d cases, %d corrupted\n", way.operation.name, name_of(way.place),
                    way.cases, way.wrong);
    }
    int cases = 0;
    int corrupted = 0;
    for (int m = 0; m < kMixCount; ++m) {
        const Tally& tally = tallies[m];
        cases += tally.cases;
        corrupted += tally.corrupted;
        std::fprintf(stderr,
                     "gpu-late-%d: {\"mix\": \"%s\", \"cases\": %d, \"reused\": %d, "
                     "\"unordered\": %d, \"unordered_corrupted\": %d, \"corrupted\": %d}\n",
                     m, kMixes[m].name, tally.cases, tally.reused, tally.unordered,
                     tally.unordered_corrupted, tally.corrupted);
    }
    std::printf("%d cases, %d corrupted\n", cases, corrupted);
    return corrupted == 0 ? 0 : 1;
}
