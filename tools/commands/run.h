#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cachealloc::tools {

struct RunOptions {
    std::vector<std::string> command;
    std::optional<std::string> conf; ///< CACHEALLOC_CONF; else the environment's
    std::string output; ///< where the recording goes and stays, with %p %h %e; empty: as usual
    bool overwrite = false;
    bool report = false; ///< wait for the program and print the report
};

/// `cachealloc run`: becomes the program, with the library preloaded. Returns only if that fails,
/// or if it has to wait for the program: then the program's exit code, 128 + N after signal N. 126
/// and 127 as shells use them: the program cannot be executed, or found.
int run_main(const RunOptions& options);

/// `text` with %p, %h and %e replaced by the process's number, the host's name and the program's.
[[nodiscard]] std::string expand_output(const std::string& text, long pid,
                                        const std::string& program);

} // namespace cachealloc::tools
