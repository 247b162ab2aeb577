// Cuts a failing program down to a small one that fails in the same way.
#pragma once

#include "tests/random/program.h"

#include <functional>

namespace random_programs {

/// Deletes operations and whole threads, and makes numbers small, as long as the program stays
/// legal natively and `fails` says true of it. Calls `fails` at most `budget` times.
Program shrink(Program program, const std::function<bool(const Program&)>& fails,
               int budget = 2000);

} // namespace random_programs
