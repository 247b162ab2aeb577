#include "shim/report.h"

#include "shim/log.h"
#include "shim/process.h"
#include "shim/unknown_entries.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include <unistd.h>

namespace cachealloc::shim {

namespace {

// The members that add up over pools, under the names they are printed with.
struct Row {
    const char* name;
    std::uint64_t PoolStatistics::*member;
};
constexpr Row kRows[] = {
    {"allocations", &PoolStatistics::allocations},
    {"frees", &PoolStatistics::frees},
    {"allocated_bytes", &PoolStatistics::allocated_bytes},
    {"allocated_bytes_peak", &PoolStatistics::allocated_bytes_peak},
    {"requested_bytes", &PoolStatistics::requested_bytes},
    {"reserved_bytes", &PoolStatistics::reserved_bytes},
    {"reserved_bytes_peak", &PoolStatistics::reserved_bytes_peak},
    {"segments", &PoolStatistics::segments},
    {"thread_hits", &PoolStatistics::thread_hits},
    {"shared_hits", &PoolStatistics::shared_hits},
    {"limbo_hits", &PoolStatistics::limbo_hits},
    {"tree_hits", &PoolStatistics::tree_hits},
    {"segment_allocs", &PoolStatistics::segment_allocs},
    {"segment_frees", &PoolStatistics::segment_frees},
    {"splits", &PoolStatistics::splits},
    {"fences", &PoolStatistics::fences},
    {"barriers", &PoolStatistics::barriers},
    {"host_waits", &PoolStatistics::host_waits},
    {"host_wait_ns", &PoolStatistics::host_wait_ns},
    {"native_waits", &PoolStatistics::native_waits},
    {"native_wait_ns", &PoolStatistics::native_wait_ns},
    {"set_aside", &PoolStatistics::set_aside},
    {"async_allocations", &PoolStatistics::async_allocations},
    {"async_frees", &PoolStatistics::async_frees},
    {"stream_hits", &PoolStatistics::stream_hits},
    {"stream_waits", &PoolStatistics::stream_waits},
    {"out_of_memory", &PoolStatistics::out_of_memory},
};

double mib(std::uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(kMiB);
}

} // namespace

const char* name_of(OrderLevel level) {
    switch (level) {
    case OrderLevel::ordered:
        return "ordered";
    case OrderLevel::fenced:
        return "fenced";
    case OrderLevel::finished:
        return "finished";
    case OrderLevel::wait:
        return "wait";
    }
    return "unknown";
}

void print_statistics() {
    Process* const state = process();
    if (state == nullptr) return;
    PoolStatistics sum;
    std::uint64_t pools = 0;
    OrderLevel level = OrderLevel::ordered;
    state->contexts.for_each_ever([&](ContextPool& context) {
        const PoolStatistics one = context.pool.statistics();
        for (const Row& row : kRows)
            sum.*row.member += one.*row.member;
        level = std::max(level, context.pool.fences().level());
        ++pools;
    });
    char line[8192]; // twice what all of it can need
    int at = std::snprintf(
        line, sizeof(line),
        "cachealloc-stats: {\"pid\": %d, \"pools\": %" PRIu64 ", \"level\": \"%s\""
        ", \"driver_alloc_calls\": %" PRIu64 ", \"driver_free_calls\": %" PRIu64
        ", \"passed_calls\": %" PRIu64 ", \"query_waits\": %" PRIu64 ", \"mapped_pinned\": %" PRIu64
        ", \"mapped_pinned_largest\": %" PRIu64,
        static_cast<int>(getpid()), pools, pools == 0 ? "none" : name_of(level),
        state->calls.alloc.load(), state->calls.free.load(), state->calls.passed.load(),
        state->host_watch.query_waits(), state->host_watch.reachable.mapped_asked(),
        state->host_watch.reachable.mapped_largest());
    const auto append = [&](const char* format, auto... values) {
        at += std::snprintf(line + at, sizeof(line) - static_cast<std::size_t>(at), format,
                            values...);
    };
    for (const Row& row : kRows)
        append(", \"%s\": %" PRIu64, row.name, sum.*row.member);
    append("%s", ", \"newer_functions\": [");
    constexpr std::size_t kNamed = 16;
    for (std::size_t i = 0; i < kNamed && UnknownEntries::called(i) != nullptr; ++i)
        append("%s\"%s\"", i == 0 ? "" : ", ", UnknownEntries::called(i));
    std::fprintf(stderr, "%s]}\n", line); // at once: other processes may write there too
}

void report_out_of_memory(ContextPool& context, std::uint64_t bytes) {
    const PoolStatistics now = context.pool.statistics();
    const double free = mib(now.cached_bytes);
    const double unusable = now.cached_bytes == 0
                                ? 0
                                : 100.0 * (1.0 - static_cast<double>(now.largest_free_bytes) /
                                                     static_cast<double>(now.cached_bytes));
    logf(LogLevel::error,
         "out of device memory: %" PRIu64
         " bytes (%.1f MiB) requested on device %d; live %.1f MiB in %" PRIu64
         " blocks, cached %.1f MiB, largest free block %.1f MiB, fragmentation %.0f %%",
         bytes, mib(bytes), context.device, mib(now.allocated_bytes), now.allocations - now.frees,
         free, mib(now.largest_free_bytes), unusable);
}

} // namespace cachealloc::shim
