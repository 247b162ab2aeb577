// What the commands that read a recording have in common.
#pragma once

#include "tools/analysis/history.h"
#include "tools/commands/stack_names.h"
#include "tools/trace/trace.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

struct ReadOptions {
    std::string file;      ///< empty: the newest recording
    bool json = false;     ///< for programs instead of people
    int device = -1;       ///< an ordinal; -1: all
    std::size_t top = 0;   ///< lines of a list; 0: the command's own choice
    bool by_class = false; ///< report: small and large requests apart
    bool symbols = true;   ///< false: module and offset, no file is opened
    SymbolSearch search;
};

/// A line on standard error that moves, if that is a terminal and the work takes long.
class Progress {
  public:
    explicit Progress(std::string what);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    /// `share` of the work is done, 0 .. 1; at 1 the line is gone. Cheap.
    void show(double share);

  private:
    void clear();

    std::string what_;
    bool terminal_;
    bool shown_ = false;
    std::chrono::steady_clock::time_point next_;
};

/// A recording that was read, with its history and the names of its stacks.
struct Recording {
    /// Throws TraceError.
    explicit Recording(const ReadOptions& options);

    Progress progress;
    Trace trace;
    History history;
    StackNames names;
};

/// The recording to read: the one named, else the newest in the default directories. Throws
/// TraceError if there is none.
[[nodiscard]] std::string chosen_file(const std::string& named);

/// The newest regular file of a directory whose name begins and ends so; empty if there is none.
[[nodiscard]] std::string newest_file(const std::string& directory, std::string_view begin,
                                      std::string_view end);

/// Directories where recordings are by default, in the order in which they are looked through.
[[nodiscard]] std::vector<std::string> default_directories();

/// Lines on standard error, for what is worth knowing about symbols: at most a few.
void print_symbol_notes(const StackNames& names);

} // namespace cachealloc::tools
