#include "tools/trace/trace.h"

#include <cerrno>
#include <csignal>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include <sys/stat.h>
#include <sys/types.h>

namespace cachealloc::tools {

namespace {

/// Whether the process has the file mapped; another process may have got the number since. True
/// where we may not look.
bool has_mapped(std::uint32_t pid, const std::string& path) {
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0) return false;
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    if (!maps) return true;
    for (std::string line; std::getline(maps, line);) {
        std::istringstream fields(line);
        std::string range, rights, offset, device;
        std::uint64_t inode = 0;
        // The device is not compared: some file systems show another one here than to stat().
        if (fields >> range >> rights >> offset >> device >> inode && inode == file.st_ino)
            return true;
    }
    return false;
}

bool is_running(const TraceFile& file) {
    const TraceHeader& is = file.header();
    const bool writing =
        is.state == trace::RunState::recording || is.state == trace::RunState::starting;
    if (!writing || is.pid == 0 || is.pid > std::uint32_t{std::numeric_limits<pid_t>::max()})
        return false;
    // Another user's process refuses the question, and is there.
    if (::kill(static_cast<pid_t>(is.pid), 0) != 0 && errno != EPERM) return false;
    return has_mapped(is.pid, file.path());
}

} // namespace

Trace::Trace(std::string path)
    : file(std::move(path)), events(file), live(file), stacks(file), modules(file), threads(file),
      devices(file), statistics(file), settings(file), clock(file.header()),
      running_(is_running(file)) {}

} // namespace cachealloc::tools
