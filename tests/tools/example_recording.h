#pragma once

#include "tests/tools/trace_builder.h"

#include <cstdint>

namespace cachealloc::tests {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// A short run on two devices, with everything that a report can show; used by several tests, which
/// hold the numbers worked out by hand. Addresses of device 0 are in MiB.
///
///     time us  event (sizes in MiB)                                live  reserved
///     1        segment [0, 64), large                                 0        64
///     2        A: 16 at 0                                            16        64
///     3        B: 1 at 16, rounded up by 1                           17        64
///     4        C: 30 at 32                                           47        64
///     5        managed M: 8                                          55        64
///     6        segment [128, 160), large                             55        96
///     7        D: 4 at 128                                           59        96     peak of live
///     8        free A, unfinished                                    43        96
///     9        free C                                                13        96
///     10       segment [256, 320), large                             13       160     peak of
///     reserved 11       free D                                                 9       160 12 A's
///     free is completed                                  9       160 13       a request for 100
///     fails; the driver has 3 free         9       160
///
/// At the peak of reserved: live 5 (B 1, D 4), rounding 1; A's 16 unfinished; hard 64-16-2=46 in
/// the first segment and 28 in the second; soft 64. B pins the first segment, D the second.
inline void example_recording(TraceBuilder& builder) {
    builder.setting("exe", "/opt/app/train");
    builder.setting("command", "train --epochs 3");
    builder.setting("conf", "stats:True");
    builder.device(0, "H200", 141 * (kMiB << 10));
    builder.module("/opt/app/train", 0x400000, 0x400000, 0x500000, "build-id-of-train---");
    builder.module("/usr/lib/libcudart.so.13", 0x7f0000000000, 0x7f0000000000, 0x7f0000100000);
    builder.module("/lib/libcachealloc.so", 0x7f1000000000, 0x7f1000000000, 0x7f1000100000, "own",
                   1);
    const std::uint32_t big = builder.stack({0x7f1000000010, 0x7f0000000020, 0x400100, 0x400200});
    const std::uint32_t small = builder.stack({0x7f1000000010, 0x7f0000000020, 0x400300, 0x400200});
    builder.thread("train", 4242);
    const auto by = [](std::uint32_t stack) {
        EventDetails details;
        details.stack = stack;
        return details;
    };
    EventDetails rounded = by(small);
    rounded.extra = static_cast<std::uint32_t>(kMiB);
    EventDetails managed = by(big);
    managed.memory = trace::MemoryType::managed;
    builder.segment_alloc(0, 64 * kMiB);
    builder.alloc(0, 16 * kMiB, by(big));
    builder.alloc(16 * kMiB, kMiB, rounded);
    builder.alloc(32 * kMiB, 30 * kMiB, by(big));
    builder.alloc(0x700000000000, 8 * kMiB, managed);
    builder.segment_alloc(128 * kMiB, 32 * kMiB);
    builder.alloc(128 * kMiB, 4 * kMiB, by(small));
    builder.free(0, {}, true);
    builder.free(32 * kMiB);
    builder.segment_alloc(256 * kMiB, 64 * kMiB);
    builder.free(128 * kMiB);
    builder.free_completed(0, 16 * kMiB);
    builder.out_of_memory(100 * kMiB, 3 * kMiB, by(big));
    builder.statistic("allocations", 4);
    builder.statistic("frees", 3);
    builder.statistic("segment_allocs", 3);
    builder.statistic("driver_alloc_calls", 3);
    builder.statistic("driver_alloc_ns", 300'000);
}

} // namespace cachealloc::tests
