// What all exporters have in common.
#pragma once

#include "tools/analysis/history.h"
#include "tools/exports/export.h"
#include "tools/exports/output_file.h"
#include "tools/symbols/stack_symbols.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cachealloc::tools {

/// The part of a recording that was asked for.
class ExportWindow {
  public:
    ExportWindow(const Trace& trace, const ExportOptions& options)
        : clock_(trace.clock), from_(options.from_seconds * 1e9), to_(options.to_seconds * 1e9),
          device_(options.device) {}

    [[nodiscard]] bool before(std::uint64_t ticks) const {
        return clock_.since_start(ticks) < from_;
    }
    [[nodiscard]] bool behind(std::uint64_t ticks) const { return clock_.since_start(ticks) > to_; }
    [[nodiscard]] bool has_device(std::uint8_t device) const {
        return device_ < 0 || device_ == device;
    }

  private:
    const Clock& clock_;
    double from_; ///< nanoseconds since the start, as `to_`
    double to_;
    int device_;
};

/// What an exporter works with.
struct ExportJob {
    const Trace& trace;
    History& history;
    StackSymbols& stacks;
    const ExportOptions& options;
    ExportWindow window;
    OutputFile& output;
};

/// One function a format; they throw OutputError.
void export_memory_viz(ExportJob& job);
void export_collapsed(ExportJob& job);
void export_speedscope(ExportJob& job);
void export_perfetto(ExportJob& job);
void export_csv(ExportJob& job);

/// The devices of the window that have memory or counters, by ordinal. O(live memory).
[[nodiscard]] std::vector<std::uint8_t> export_devices(const ExportJob& job);

/// The program's file name, or "process" where it is not known.
[[nodiscard]] std::string program_name(const Trace& trace);
/// "worker (4711)": the thread's name and its number in the system.
[[nodiscard]] std::string thread_label(const Trace& trace, std::uint32_t thread);

} // namespace cachealloc::tools
