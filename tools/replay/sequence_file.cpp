#include "tools/replay/sequence_file.h"

#include "tools/replay/recorded_sequence.h"
#include "tools/replay/text_sequences.h"
#include "tools/trace/trace.h"

#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace cachealloc::tools {

namespace {

bool is_recording(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) return false;
    char magic[sizeof trace::kMagic] = {};
    const ssize_t got = ::read(descriptor, magic, sizeof magic);
    ::close(descriptor);
    return got == ssize_t{sizeof magic} && std::memcmp(magic, trace::kMagic, sizeof magic) == 0;
}

AllocationSequence read_text(const std::string& path, int pool) {
    TextLines lines(path);
    std::string_view title;
    const bool any = lines.next(title);
    if (!any || (title != kEventsTitle && title != kIntervalsTitle))
        throw TraceError(fmt::format("{}:1: neither a recording nor one of the title lines that "
                                     "are allowed: {} or {}",
                                     path, kEventsTitle, kIntervalsTitle));
    if (pool >= 0)
        throw TraceError(fmt::format("{}: --pool chooses in recordings; this is text", path));
    return title == kEventsTitle ? read_events(lines) : read_intervals(lines);
}

} // namespace

AllocationSequence read_sequence(const std::string& path, int pool,
                                 std::function<void(double)> progress) {
    AllocationSequence sequence = is_recording(path)
                                      ? read_recording(path, pool, std::move(progress))
                                      : read_text(path, pool);
    sequence.name = path;
    return sequence;
}

} // namespace cachealloc::tools
