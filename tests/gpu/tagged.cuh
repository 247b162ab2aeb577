// Buffers whose every byte says whose they are: a kernel fills one with a tag's pattern, another
// checks it. Include it in exactly one source file of a program.
#pragma once

#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

namespace tagged {

using Count = unsigned long long;

constexpr unsigned kGrid = 32;
constexpr unsigned kBlock = 256;

/// Byte `i` of a buffer with this tag: the bytes of a mixed word, one after another.
__host__ __device__ inline unsigned char byte_of(std::uint32_t tag, std::size_t i) {
    const std::uint32_t word = app::mix(tag, static_cast<std::uint32_t>(i / 4));
    return static_cast<unsigned char>(word >> (8 * (i % 4)));
}

/// Works on the bytes first, first + step, ... in words where the buffer has whole ones; gives the
/// number of bytes that are not the tag's. Buffers begin at a multiple of 4.
__host__ __device__ inline Count wrong_bytes(const unsigned char* data, std::size_t bytes,
                                             std::uint32_t tag, std::size_t first,
                                             std::size_t step) {
    Count wrong = 0;
    const auto* words = reinterpret_cast<const std::uint32_t*>(data);
    for (std::size_t w = first; w < bytes / 4; w += step) {
        if (words[w] != app::mix(tag, static_cast<std::uint32_t>(w))) wrong += 4;
    }
    for (std::size_t i = bytes / 4 * 4 + first; i < bytes; i += step) {
        if (data[i] != byte_of(tag, i)) ++wrong;
    }
    return wrong;
}

__host__ __device__ inline void fill_bytes(unsigned char* data, std::size_t bytes,
                                           std::uint32_t tag, std::size_t first, std::size_t step) {
    auto* words = reinterpret_cast<std::uint32_t*>(data);
    for (std::size_t w = first; w < bytes / 4; w += step)
        words[w] = app::mix(tag, static_cast<std::uint32_t>(w));
    for (std::size_t i = bytes / 4 * 4 + first; i < bytes; i += step)
        data[i] = byte_of(tag, i);
}

} // namespace tagged

extern "C" __global__ void tagged_fill(unsigned char* data, std::size_t bytes, std::uint32_t tag) {
    tagged::fill_bytes(data, bytes, tag, app::thread_index(), app::thread_count());
}

SIMCUDA_TWIN(tagged_fill) {
    auto data = simcuda_arg<unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    auto tag = simcuda_arg<std::uint32_t>(args, 2);
    sim->writes(sim, data, bytes);
    sim->duration_ns(sim, 10000);
    simcuda_body(sim, [=] { tagged::fill_bytes(data, bytes, tag, 0, 1); });
}

/// Waits, then adds the number of bytes that are not the tag's to `*wrong`.
extern "C" __global__ void tagged_check(const unsigned char* data, std::size_t bytes,
                                        std::uint32_t tag, std::uint64_t wait_ns,
                                        tagged::Count* wrong) {
    app::spin_ns(wait_ns);
    const tagged::Count bad =
        tagged::wrong_bytes(data, bytes, tag, app::thread_index(), app::thread_count());
    if (bad != 0) atomicAdd(wrong, bad);
}

SIMCUDA_TWIN(tagged_check) {
    auto data = simcuda_arg<const unsigned char*>(args, 0);
    auto bytes = simcuda_arg<std::size_t>(args, 1);
    auto tag = simcuda_arg<std::uint32_t>(args, 2);
    auto wait_ns = simcuda_arg<std::uint64_t>(args, 3);
    auto wrong = simcuda_arg<tagged::Count*>(args, 4);
    // The counter is only touched where something is wrong; checks on several streams may then add
    // to it at once, as atomics do on a device.
    sim->reads(sim, data, bytes);
    sim->duration_ns(sim, 10000 + wait_ns);
    simcuda_body(sim, [=] { *wrong += tagged::wrong_bytes(data, bytes, tag, 0, 1); });
}
