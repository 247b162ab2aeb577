// What the core itself costs: DevicePool on a platform that costs nothing. An iteration is one pair
// (allocate + find + free); with several threads the pool is shared, as one context's is.
#include "tests/bench/null_platform.h"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

namespace {

using namespace cachealloc;
using namespace cachealloc::bench;

// The pool of the benchmark that runs; made before its threads start, gone after they ended.
std::unique_ptr<NullPool> g_pool;

template <OrderLevel Level>
void make_pool(const benchmark::State&) {
    g_pool = std::make_unique<NullPool>(Level);
}

void drop_pool(const benchmark::State&) {
    g_pool.reset();
}

// Every thread allocates and frees one block of the same size.
void pair(benchmark::State& state) {
    const auto bytes = static_cast<std::uint64_t>(state.range(0));
    NullPool& pool = *g_pool;
    for (auto _ : state) {
        const DeviceAddress address = pool.allocate(bytes);
        benchmark::DoNotOptimize(address);
        pool.free(address);
    }
}

void churn(benchmark::State& state) {
    Churn work(*g_pool, static_cast<std::uint64_t>(state.thread_index()) + 1);
    for (int i = 0; i < 20000; ++i)
        work.step();
    for (auto _ : state)
        work.step();
}

// Level `ordered` does no order work at all; `fenced` adds the core's part of a fence.
BENCHMARK(pair)
    ->Name("pair/ordered")
    ->Setup(make_pool<OrderLevel::ordered>)
    ->Teardown(drop_pool)
    ->Arg(4096)
    ->Threads(1)
    ->Threads(2)
    ->Threads(8)
    ->UseRealTime();
BENCHMARK(pair)
    ->Name("pair/fenced")
    ->Setup(make_pool<OrderLevel::fenced>)
    ->Teardown(drop_pool)
    ->Arg(4096)
    ->Threads(1)
    ->Threads(2)
    ->Threads(8)
    ->UseRealTime();
BENCHMARK(churn)
    ->Name("churn/ordered")
    ->Setup(make_pool<OrderLevel::ordered>)
    ->Teardown(drop_pool)
    ->Threads(1)
    ->Threads(2)
    ->Threads(8)
    ->UseRealTime();

} // namespace

BENCHMARK_MAIN();
