#include "tools/trace/trace.h"

#include <cerrno>
#include <csignal>
#include <limits>

#include <sys/types.h>

namespace cachealloc::tools {

bool Trace::running() const {
    const TraceHeader& is = header();
    const bool writing =
        is.state == trace::RunState::recording || is.state == trace::RunState::starting;
    if (!writing || is.pid == 0 || is.pid > std::uint32_t{std::numeric_limits<pid_t>::max()})
        return false;
    // Another user's process refuses the question, and is there.
    return ::kill(static_cast<pid_t>(is.pid), 0) == 0 || errno == EPERM;
}

} // namespace cachealloc::tools
