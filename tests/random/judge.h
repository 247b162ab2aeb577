// Runs programs and says what is wrong with the run.
#pragma once

#include "tests/random/program.h"
#include "tests/random/server.h"

#include <optional>
#include <string>

namespace random_programs {

enum class Wrong {
    race,    ///< the simulated CUDA's oracle
    hang,    ///< nothing can advance, or no end is seen
    bytes,   ///< a buffer's content
    code,    ///< a call returned what it natively does not
    memory,  ///< device memory or counters do not come out even
    crash,   ///< any other end
    illegal, ///< the program itself is not legal: the generator's mistake
};
const char* to_string(Wrong wrong);

struct Finding {
    Wrong wrong;
    std::string what; ///< lines that explain it
};

/// Whether every operation is legal natively and nothing is left open at the end.
bool legal(const Program& program);

class Judge {
  public:
    /// `program`: this program's file. `preload`: LD_PRELOAD of runs under the shim.
    Judge(const std::string& program, const std::string& preload, unsigned limit_s)
        : shim_(program, preload, limit_s), native_(program, "", limit_s) {}

    /// Runs the program under the shim; nothing: all is well.
    std::optional<Finding> under_shim(const Program& program);
    /// Runs it without.
    std::optional<Finding> natively(const Program& program);

  private:
    static std::optional<Finding> judge(const Program& program, const Run& run, bool shim);

    Server shim_;
    Server native_;
};

} // namespace random_programs
