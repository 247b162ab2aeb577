#include "tools/commands/reading.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace cachealloc::tools {

namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr std::size_t kMostNotes = 5;

} // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + 700ms) {}

Progress::~Progress() {
    clear();
}

void Progress::clear() {
    if (std::exchange(shown_, false)) std::fputs("\r\033[K", stderr);
}

void Progress::show(double share) {
    if (share >= 1) clear();
    if (share >= 1 || !terminal_ || std::chrono::steady_clock::now() < next_) return;
    next_ = std::chrono::steady_clock::now() + 100ms;
    shown_ = true;
    std::fprintf(stderr, "\r%s: %.0f %%\033[K", what_.c_str(), 100 * share);
}

Recording::Recording(const ReadOptions& options)
    : progress("reading"), trace(chosen_file(options.file)),
      history(trace, [this](double share) { progress.show(share); }),
      names(trace, options.symbols, options.search) {
    if (options.symbols && debuginfod_in_use())
        std::fputs("cachealloc: DEBUGINFOD_URLS is set: missing symbols are loaded from there, "
                   "which may take long\n",
                   stderr);
}

std::vector<std::string> default_directories() {
    std::vector<std::string> directories;
    if (const char* const chosen = std::getenv("CACHEALLOC_TRACE_DIR"); chosen && *chosen)
        directories.emplace_back(chosen);
    const std::string own = fmt::format("/cachealloc-{}", ::geteuid());
    if (const char* const temporary = std::getenv("TMPDIR"); temporary && *temporary)
        directories.push_back(temporary + own);
    for (const char* const directory : {"/var/tmp", "/tmp"})
        directories.push_back(directory + own);
    return directories;
}

std::string newest_file(const std::string& directory, std::string_view begin,
                        std::string_view end) {
    std::string newest;
    fs::file_time_type newest_time;
    std::error_code error;
    for (fs::directory_iterator at(directory, error), last; !error && at != last;
         at.increment(error)) {
        const std::string name = at->path().filename().string();
        std::error_code unreadable;
        if (name.size() < begin.size() + end.size() || !name.starts_with(begin) ||
            !name.ends_with(end) || !at->is_regular_file(unreadable))
            continue;
        const fs::file_time_type time = at->last_write_time(unreadable);
        if (unreadable || (!newest.empty() && time <= newest_time)) continue;
        newest = at->path().string();
        newest_time = time;
    }
    return newest;
}

std::string chosen_file(const std::string& named) {
    if (!named.empty()) return named;
    const std::vector<std::string> directories = default_directories();
    std::string newest;
    for (const std::string& directory : directories) {
        const std::string one = newest_file(directory, "", ".trace");
        std::error_code error;
        if (newest.empty() ||
            (!one.empty() && fs::last_write_time(one, error) > fs::last_write_time(newest, error)))
            newest = one;
    }
    if (newest.empty())
        throw TraceError(fmt::format("no recording in {}: name a .trace file, or record one with "
                                     "`cachealloc run -o FILE -- PROGRAM`",
                                     fmt::join(directories, ", ")));
    return newest;
}

void print_symbol_notes(const StackNames& names) {
    const std::vector<std::string> notes = names.notes();
    for (std::size_t i = 0; i < std::min(notes.size(), kMostNotes); ++i)
        fmt::print(stderr, "cachealloc: {}\n", notes[i]);
    if (notes.size() > kMostNotes)
        fmt::print(stderr, "cachealloc: {} modules more like these\n", notes.size() - kMostNotes);
}

} // namespace cachealloc::tools
