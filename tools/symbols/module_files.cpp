#include "tools/symbols/module_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace cachealloc::tools {
namespace {

constexpr std::string_view kSystemDebug = "/usr/lib/debug";

/// "DIR/.build-id/ab/cdef...", where distributions keep files by build-id.
std::string by_build_id(const std::string& directory, const std::string& id) {
    return directory + "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2);
}

} // namespace

OpenFile OpenFile::open(const std::string& path) {
    OpenFile file;
    // A pipe or device in the place of a library must not hold the tool up.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) {
        return file;
    }
    file.descriptor_ = descriptor;
    file.path_ = path;
    struct stat status = {};
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        return {};
    }
    return file;
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(path_, other.path_);
    return *this;
}

OpenFile::~OpenFile() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

int OpenFile::release() {
    return std::exchange(descriptor_, -1);
}

std::string hexadecimal(std::span<const std::uint8_t> bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const std::uint8_t byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

std::vector<std::string> module_candidates(const SymbolSearch& search, std::string_view path,
                                           std::span<const std::uint8_t> build_id) {
    std::vector<std::string> candidates;
    // Only an absolute path says where a file is: "[vdso]" is no file, and what a relative path
    // meant went away with the process.
    const bool absolute = path.starts_with('/');
    const std::string recorded(path);
    if (absolute) {
        candidates.push_back(search.sysroot + recorded);
    }
    std::vector<std::string> directories = search.debug_paths;
    directories.push_back(search.sysroot);
    directories.back() += kSystemDebug;
    const std::string id = build_id.size() > 1 ? hexadecimal(build_id) : std::string();
    for (const std::string& directory : directories) {
        if (!id.empty()) {
            candidates.push_back(by_build_id(directory, id));
        }
    }
    for (const std::string& directory : search.debug_paths) {
        if (absolute) {
            candidates.push_back(directory + recorded);
            candidates.push_back(directory + "/");
            candidates.back() += file_name(path);
        }
    }
    // A file of debug information alone still has the functions and lines.
    for (const std::string& directory : directories) {
        if (!id.empty()) {
            candidates.push_back(by_build_id(directory, id) + ".debug");
        }
    }
    return candidates;
}

std::string debug_info_path(const SymbolSearch& search) {
    std::string path;
    for (const std::string& directory : search.debug_paths) {
        path += directory + ":";
    }
    // Beside the file, in its .debug folder, then where the system keeps it.
    path += ":.debug:" + search.sysroot;
    path += kSystemDebug;
    return path;
}

bool debuginfod_in_use() {
    const char* servers = std::getenv("DEBUGINFOD_URLS");
    return servers != nullptr && *servers != '\0';
}

std::string_view file_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

} // namespace cachealloc::tools
