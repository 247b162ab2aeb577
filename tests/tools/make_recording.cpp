// Writes recordings for the tests of the command line and for measurements:
//   make_recording example FILE
//   make_recording fragmented FILE        blocks of growing sizes, recorded under options
//   make_recording churn EVENTS FILE      as many events of 8 threads, 512 stacks, 5000 live blocks
#include "core/options.h"
#include "tests/tools/example_recording.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using cachealloc::tests::EventDetails;
using cachealloc::tests::kMiB;
using cachealloc::tests::TraceBuilder;

void churn(TraceBuilder& builder, std::uint64_t events) {
    constexpr std::uint32_t kThreads = 8;
    constexpr std::uint32_t kStacks = 512;
    constexpr std::uint64_t kBlocks = 5000;
    builder.setting("exe", "/opt/app/churn");
    builder.device(0, "H200", 141 * (kMiB << 10));
    builder.module("/opt/app/churn", 0x400000, 0x400000, 0x500000, "churn");
    for (std::uint32_t i = 0; i < kStacks; ++i) {
        std::vector<cachealloc::trace::Frame> frames;
        for (std::uint32_t depth = 0; depth < 30; ++depth)
            frames.push_back(0x400000 + 64 * (i + depth * depth));
        builder.stack(frames);
    }
    for (std::uint32_t i = 0; i < kThreads; ++i)
        builder.thread("worker", 100 + i);
    builder.segment_alloc(0, kBlocks * kMiB);
    std::vector<bool> live(kBlocks);
    std::uint64_t random = 1;
    for (std::uint64_t i = 1; i < events; ++i) {
        random = random * 6364136223846793005 + 1442695040888963407;
        const std::uint64_t block = (random >> 33) % kBlocks;
        EventDetails details;
        details.thread = 1 + static_cast<std::uint32_t>(random >> 60) % kThreads;
        if (live[block]) {
            builder.free(block * kMiB, details);
        } else {
            details.stack = 1 + static_cast<std::uint32_t>(random >> 50) % kStacks;
            builder.alloc(block * kMiB, 1 + (random >> 40) % kMiB, details);
        }
        live[block] = !live[block];
    }
}

void fragmented(TraceBuilder& builder) {
    cachealloc::Options options;
    options.free_mode = cachealloc::FreeMode::async;
    options.slack_mb = 7;
    builder.setting("options", cachealloc::format_options(options));
    for (std::uint64_t i = 1; i <= 60; ++i) {
        builder.segment_alloc(i << 30, (i + 10) * kMiB);
        builder.alloc(i << 30, (i + 9) * kMiB + 5);
        if (i % 3 != 0) builder.free(i << 30);
    }
}

} // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    TraceBuilder builder;
    if (what == "example" && argc == 3) {
        cachealloc::tests::example_recording(builder);
    } else if (what == "fragmented" && argc == 3) {
        fragmented(builder);
    } else if (what == "churn" && argc == 4) {
        churn(builder, std::strtoull(argv[2], nullptr, 10));
    } else {
        std::fprintf(stderr, "usage: %s example FILE | fragmented FILE | churn EVENTS FILE\n",
                     argv[0]);
        return 2;
    }
    if (builder.write(argv[argc - 1])) return 0;
    std::perror(argv[argc - 1]);
    return 1;
}
