#include "shim/report.h"

#include "shim/log.h"
#include "shim/process.h"
#include "shim/statistics.h"
#include "shim/unknown_entries.h"

#include <cinttypes>
#include <cstdio>

#include <unistd.h>

namespace cachealloc::shim {

namespace {

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
    const Statistics all = collect_statistics(*state);
    char line[8192]; // twice what all of it can need
    int at = std::snprintf(line, sizeof(line), "cachealloc-stats: {\"pid\": %d, \"level\": \"%s\"",
                           static_cast<int>(getpid()),
                           all.pool_count == 0 ? "none" : name_of(all.level));
    const auto append = [&](const char* format, auto... values) {
        at += std::snprintf(line + at, sizeof(line) - static_cast<std::size_t>(at), format,
                            values...);
    };
    for (const StatisticRow& row : kStatisticRows)
        append(", \"%s\": %" PRIu64, row.name, value_of(row, all));
    append("%s", ", \"newer_functions\": [");
    constexpr std::size_t kNamed = 16;
    for (std::size_t i = 0; i < kNamed && UnknownEntries::called(i) != nullptr; ++i)
        append("%s\"%s\"", i == 0 ? "" : ", ", UnknownEntries::called(i));
    std::fprintf(stderr, "%s]}\n", line); // at once: other processes may write there too
}

void report_out_of_memory(ContextPool& context, std::uint64_t bytes, bool over_limit) {
    const PoolStatistics now = context.pool.statistics();
    const double free = mib(now.cached_bytes);
    const double unusable = now.cached_bytes == 0
                                ? 0
                                : 100.0 * (1.0 - static_cast<double>(now.largest_free_bytes) /
                                                     static_cast<double>(now.cached_bytes));
    char reason[128] = "";
    if (over_limit) {
        const Fraction share = process()->options.per_process_memory_fraction;
        std::snprintf(reason, sizeof reason, "; per_process_memory_fraction allows %.1f MiB",
                      mib(share.of(context.source.total_bytes())));
    }
    logf(LogLevel::error,
         "out of device memory: %" PRIu64
         " bytes (%.1f MiB) requested on device %d; live %.1f MiB in %" PRIu64
         " blocks, cached %.1f MiB, largest free block %.1f MiB, fragmentation %.0f %%%s",
         bytes, mib(bytes), context.device, mib(now.allocated_bytes), now.allocations - now.frees,
         free, mib(now.largest_free_bytes), unusable, reason);
}

} // namespace cachealloc::shim
