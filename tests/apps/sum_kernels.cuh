// Two kernels with host twins that several programs share: fill a buffer with a pattern, add a
// buffer up. Include it in exactly one source file of a program.
#pragma once

#include "tests/apps/app.h"
#include "tests/simcuda/twin.h"

namespace app {

using Word = std::uint32_t;
using Sum = unsigned long long;

constexpr unsigned kSumGrid = 32;
constexpr unsigned kSumBlock = 256;

__host__ __device__ inline Word pattern(Word tag, std::size_t i) {
    return mix(tag, static_cast<Word>(i));
}

/// What add_words gives for a buffer that fill_words has filled.
inline Sum pattern_sum(Word tag, std::size_t words) {
    Sum sum = 0;
    for (std::size_t i = 0; i < words; ++i) {
        sum += pattern(tag, i);
    }
    return sum;
}

} // namespace app

extern "C" __global__ void fill_words(app::Word* data, std::size_t words, app::Word tag) {
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        data[i] = app::pattern(tag, i);
    }
}

SIMCUDA_TWIN(fill_words) {
    auto data = simcuda_arg<app::Word*>(args, 0);
    auto words = simcuda_arg<std::size_t>(args, 1);
    auto tag = simcuda_arg<app::Word>(args, 2);
    sim->writes(sim, data, words * sizeof(app::Word));
    sim->duration_ns(sim, 10000);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < words; ++i) {
            data[i] = app::pattern(tag, i);
        }
    });
}

/// Adds every word of `data` to `*sum`.
extern "C" __global__ void add_words(const app::Word* data, std::size_t words, app::Sum* sum) {
    app::Sum local = 0;
    for (std::size_t i = app::thread_index(); i < words; i += app::thread_count()) {
        local += data[i];
    }
    atomicAdd(sum, local);
}

SIMCUDA_TWIN(add_words) {
    auto data = simcuda_arg<const app::Word*>(args, 0);
    auto words = simcuda_arg<std::size_t>(args, 1);
    auto sum = simcuda_arg<app::Sum*>(args, 2);
    sim->reads(sim, data, words * sizeof(app::Word));
    sim->reads(sim, sum, sizeof(app::Sum));
    sim->writes(sim, sum, sizeof(app::Sum));
    sim->duration_ns(sim, 10000);
    simcuda_body(sim, [=] {
        for (std::size_t i = 0; i < words; ++i) {
            *sum += data[i];
        }
    });
}
