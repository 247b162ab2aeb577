// Runs a program against whatever libcuda and libcudart the process has.
#pragma once

#include "tests/random/program.h"

#include <cstdint>
#include <span>

namespace random_programs {

/// Exit statuses of a run, beside the simulated CUDA's own (86 race, 87 deadlock).
enum Status : int {
    kFine = 0,
    kWrongBytes = 85, ///< a buffer holds something else than the program put there
    kMemoryLeft = 84, ///< everything was freed and device memory is still taken
    kCallFailed = 83, ///< a call of the cleaning up failed
};

/// What an operation's code is when it was not reached, or left out because its buffer could not be
/// had.
constexpr std::int32_t kNotReached = -2;
constexpr std::int32_t kLeftOut = -1;

/// Carries the program out and cleans up; `codes[i]` receives what operation i returned. Returns a
/// Status. To be called once in a process that has not used CUDA before.
int interpret(const Program& program, std::span<std::int32_t> codes);

} // namespace random_programs
