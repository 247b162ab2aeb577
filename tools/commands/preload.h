// What goes into LD_PRELOAD.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

/// libcachealloc.so beside the tool that runs, or in the lib folder beside the tool's; empty if it
/// is not there.
[[nodiscard]] std::string preload_library();

/// The file that executing `command` starts, found as execvp() does; empty if there is none.
[[nodiscard]] std::string program_path(const std::string& command);

/// The sanitizer runtimes among the libraries that the program at `path` is linked with
/// ("libasan.so.8"): they insist on being loaded before all others. Empty for scripts and the like.
[[nodiscard]] std::vector<std::string> sanitizer_runtimes(const std::string& path);

/// LD_PRELOAD for `library`: sanitizer runtimes first, then the library, then what was preloaded
/// before. Nothing comes twice.
[[nodiscard]] std::string preload_text(const std::string& library,
                                       const std::vector<std::string>& sanitizers,
                                       std::string_view before);

} // namespace cachealloc::tools
