// What the recorder itself costs: events into a real file, with stacks that cost nothing to
// capture. An iteration is one pair (allocated + freed); with several threads the recorder is
// shared, as in a process. Usage: record_core [FOLDER] [benchmark's options]
#include "core/record/recorder.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace {

using namespace cachealloc;

/// The same stack of the length that the benchmark asks for.
class SameStack : public StackSource {
  public:
    std::size_t depth = 0;
    std::size_t capture(trace::Frame* frames, std::size_t room, bool& cut) override {
        const std::size_t count = std::min(depth, room);
        for (std::size_t i = 0; i < count; ++i)
            frames[i] = 0x400000 + 64 * i;
        cut = count < depth;
        return count;
    }
};

Recorder* g_recorder;
SameStack g_stack;

void set_depth(const benchmark::State& state) {
    g_stack.depth = static_cast<std::size_t>(state.range(0));
}

MemoryEvent event_of(std::uint64_t address) {
    MemoryEvent event;
    event.address = address;
    event.size = 4096;
    event.memory = trace::MemoryType::pooled;
    return event;
}

void allocate(std::uint64_t address, bool with_stack) {
    const RecordedCall call(g_recorder, trace::CallName::mem_alloc, with_stack);
    g_recorder->allocated(event_of(address));
}

void give_back(std::uint64_t address) {
    const RecordedCall call(g_recorder, trace::CallName::mem_free);
    g_recorder->freed(trace::AddressSpace::device, event_of(address));
}

/// Each thread allocates and frees `range(1)` blocks in turn.
void pairs(benchmark::State& state) {
    const bool with_stack = state.range(0) != 0;
    const auto blocks = static_cast<std::uint64_t>(state.range(1));
    const std::uint64_t base = std::uint64_t(state.thread_index() + 1) << 32;
    for (std::uint64_t i = 0; i + 1 < blocks; ++i)
        allocate(base + i * 4096, with_stack);
    std::uint64_t newest = blocks - 1;
    for (auto _ : state) {
        allocate(base + newest % blocks * 4096, with_stack);
        give_back(base + (newest + 1) % blocks * 4096);
        ++newest;
    }
    for (std::uint64_t i = 1; i < blocks; ++i)
        give_back(base + (newest + i) % blocks * 4096);
}

BENCHMARK(pairs)
    ->Setup(set_depth)
    ->ArgNames({"frames", "live"})
    ->ArgsProduct({{0, 8, 30, 60}, {1}})
    ->Args({30, 1000})
    ->Threads(1)
    ->Threads(8)
    ->UseRealTime();

} // namespace

int main(int count, char** arguments) {
    benchmark::Initialize(&count, arguments);
    const std::string folder = count > 1 ? arguments[1] : "/tmp";
    const std::string path = folder + "/record_core." + std::to_string(getpid()) + ".trace";
    const char* const paths[] = {path.c_str()};
    RecorderSettings settings;
    settings.paths = paths;
    settings.path_count = 1;
    settings.stacks = &g_stack;
    int error = 0;
    std::size_t used = 0;
    g_recorder = Recorder::start(settings, error, used);
    if (g_recorder == nullptr) {
        std::fprintf(stderr, "record_core: no file %s: error %d\n", path.c_str(), error);
        return 1;
    }
    benchmark::RunSpecifiedBenchmarks();
    g_recorder->exiting(true);
    return 0;
}
