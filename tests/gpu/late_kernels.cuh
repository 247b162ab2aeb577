// The kernels of late_writers: the late reader, the writer, and the check of what was written.
// Include it in exactly one source file of a program.
#pragma once

#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

namespace late {

constexpr unsigned char kBefore = 0xA5; // what the reader expects
constexpr unsigned char kAfter = 0x3C;  // what every writer writes
constexpr unsigned kGrid = 32;
constexpr unsigned kBlock = 256;

} // namespace late

// Waits, then counts the bytes that are not `expected`.
extern "C" __global__ void read_late(const volatile unsigned char* data, std::size_t bytes,
                                     unsigned char expected, std::uint64_t wait_ns,
                                     unsigned long long* wrong) {
    app::spin_ns(wait_ns);
    unsigned long long bad = 0;
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        if (data[i] != expected) ++bad;
    }
    if (bad != 0) atomicAdd(wrong, bad);
}

SIMCUDA_TWIN(read_late) {
    auto data = simcuda_arg<const unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    auto expected = simcuda_arg<unsigned char>(args, 2);
    auto wait_ns = simcuda_arg<std::uint64_t>(args, 3);
    auto wrong = simcuda_arg<unsigned long long*>(args, 4);
    sim->reads(sim, data, bytes);
    sim->writes(sim, wrong, sizeof *wrong);
    sim->duration_ns(sim, wait_ns);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < bytes; ++i) {
            if (data[i] != expected) ++*wrong;
        }
    });
}

extern "C" __global__ void write_bytes(unsigned char* data, std::size_t bytes) {
    for (std::size_t i = app::thread_index(); i < bytes; i += app::thread_count()) {
        data[i] = late::kAfter;
    }
}

SIMCUDA_TWIN(write_bytes) {
    auto data = simcuda_arg<unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    sim->writes(sim, data, bytes);
    simcuda_body(sim, [=] { std::memset(data, late::kAfter, bytes); });
}
