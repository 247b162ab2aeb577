// Finds the files of modules that were loaded elsewhere or earlier.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

/// Where to look besides the recorded path.
struct SymbolSearch {
    std::string sysroot; ///< put before recorded paths; they are then tried there only
    std::vector<std::string> debug_paths; ///< searched by build-id, by path and by name
};

/// A regular file opened for reading. Owns its descriptor.
class OpenFile {
  public:
    /// Opens `path` if it is a regular file, without waiting (a named pipe is not opened).
    static OpenFile open(const std::string& path);
    OpenFile() = default;
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    OpenFile(OpenFile&& other) noexcept;
    OpenFile& operator=(OpenFile&& other) noexcept;
    ~OpenFile();

    [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
    [[nodiscard]] int descriptor() const { return descriptor_; }
    [[nodiscard]] const std::string& path() const { return path_; }
    /// Gives the descriptor away; the caller closes it.
    int release();

  private:
    int descriptor_ = -1;
    std::string path_;
};

/// The build-id as files are named after it: lower-case hexadecimal.
[[nodiscard]] std::string hexadecimal(std::span<const std::uint8_t> bytes);

/// Paths where the module's own file may be, the likeliest first.
[[nodiscard]] std::vector<std::string> module_candidates(const SymbolSearch& search,
                                                         std::string_view path,
                                                         std::span<const std::uint8_t> build_id);

/// Directories for libdw's search of separate debug files, in its notation (colons between).
[[nodiscard]] std::string debug_info_path(const SymbolSearch& search);

/// Whether the user asks libdw, through DEBUGINFOD_URLS, to load what is not found from servers:
/// that may take long, so tools say so.
[[nodiscard]] bool debuginfod_in_use();

/// The last part of a path.
[[nodiscard]] std::string_view file_name(std::string_view path);

} // namespace cachealloc::tools
