// The files that other programs read: what `cachealloc export` writes.
#pragma once

#include "tools/symbols/module_files.h"

#include <cstdint>
#include <limits>
#include <string>

namespace cachealloc::tools {

enum class ExportFormat : std::uint8_t { memory_viz, collapsed, speedscope, perfetto, csv };

/// Which bytes a stack is charged with in `collapsed` (`speedscope` holds both units of it).
enum class ExportCost : std::uint8_t {
    end,       ///< live at the end of the window
    peak,      ///< live when the device bytes were at their highest
    allocated, ///< handed out in the window, whatever became of it
};

struct ExportOptions {
    std::string file; ///< the recording
    ExportFormat format = ExportFormat::memory_viz;
    ExportCost cost = ExportCost::peak;
    std::string output;     ///< "-": standard output
    bool overwrite = false; ///< else an existing file is an error
    int device = -1;        ///< ordinal; -1: all
    /// The window, in seconds since the start of the recording.
    double from_seconds = 0;
    double to_seconds = std::numeric_limits<double>::infinity();
    bool symbols = true; ///< else frames are "module+offset" without a look at files
    SymbolSearch search;
    bool progress = false; ///< a line that moves, on standard error
};

/// Writes the file. Returns the exit code: 0, 2 where the output cannot be written, 3 where the
/// recording cannot be read; what went wrong is one line on standard error. The output appears
/// whole or not at all.
int export_main(const ExportOptions& options);

/// "memory_viz" and so on; and back: false if there is no such format (cost).
[[nodiscard]] const char* export_format_name(ExportFormat format);
[[nodiscard]] bool parse_export_format(const std::string& name, ExportFormat& format);
[[nodiscard]] bool parse_export_cost(const std::string& name, ExportCost& cost);

} // namespace cachealloc::tools
