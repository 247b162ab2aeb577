#pragma once

#include <string>
#include <vector>

namespace cachealloc::tools {

/// The whole program: understands the command line and runs the command. Gives the exit status.
int command_line(int argc, char** argv);

/// A number of bytes: "4096", "64K", "1.5G" (powers of 1024; a B or iB may follow). False if it is
/// none.
[[nodiscard]] bool parse_bytes(const std::string& text, std::uint64_t& bytes);

} // namespace cachealloc::tools
