#include "tools/analysis/savings.h"

#include <algorithm>

namespace cachealloc::tools {

namespace {

std::uint64_t beyond(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : 0;
}

double mean(std::uint64_t sum, std::uint64_t count) {
    return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

} // namespace

Savings savings_of(const Statistics& statistics) {
    Savings savings;
    savings.requests = statistics["allocations"];
    savings.frees = statistics["frees"];
    savings.alloc_calls =
        beyond(savings.requests, statistics["segment_allocs"] + statistics["map_calls"]);
    savings.free_calls =
        beyond(savings.frees, statistics["segment_frees"] + statistics["unmap_calls"]);
    // A cudaFreeAsync waits for nothing natively.
    savings.waits = beyond(savings.frees, statistics["async_frees"] + statistics["native_waits"]);
    savings.alloc_call_ns = mean(statistics["driver_alloc_ns"], statistics["driver_alloc_calls"]);
    savings.free_call_ns = mean(statistics["driver_free_ns"], statistics["driver_free_calls"]);
    // Of the pool's waits, those that a native free includes too cost the program nothing more.
    savings.waited_ns =
        static_cast<double>(beyond(statistics["host_wait_ns"], statistics["native_wait_ns"]));
    const double calls = static_cast<double>(savings.alloc_calls) * savings.alloc_call_ns +
                         static_cast<double>(savings.free_calls) * savings.free_call_ns;
    savings.saved_ns = std::max(calls - savings.waited_ns, 0.0);
    return savings;
}

} // namespace cachealloc::tools
