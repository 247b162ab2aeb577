// Programs run in children of a process that has not used CUDA yet: what the shim and the simulated
// CUDA keep per process is new for each, and a fork costs far less than a start.
//
// `serve()` is that process, started with the shim preloaded or without; `Server` is its other end.
#pragma once

#include "tests/random/program.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

namespace random_programs {

struct Run {
    int status = 0;                  ///< as a shell reports it: exit status, or 128 + signal
    std::vector<std::int32_t> codes; ///< one an operation
    std::string messages;            ///< what it wrote to standard error
};

/// interpret(), of interpreter.h.
using Interpreter = int (*)(const Program&, std::span<std::int32_t>);

/// Reads programs from standard input and runs each in a child, until the input ends. Returns an
/// exit status. `limit_s`: a run that takes longer is ended (status 142).
int serve(unsigned limit_s, Interpreter interpreter);

class Server {
  public:
    /// Starts `program --serve limit_s`, with `preload` as LD_PRELOAD unless it is empty.
    Server(const std::string& program, const std::string& preload, unsigned limit_s);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// Not thread-safe. Ends this process if the server is gone.
    Run run(const Program& program);

  private:
    pid_t child_ = -1;
    int to_ = -1;
    int from_ = -1;
};

} // namespace random_programs
