#include "tools/exports/export.h"

#include "tools/exports/exporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

namespace cachealloc::tools {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitUnreadable = 3;

struct FormatRow {
    ExportFormat format;
    const char* name;
    void (*write)(ExportJob& job);
};
constexpr std::array<FormatRow, 5> kFormats = {
    {{ExportFormat::memory_viz, "memory_viz", export_memory_viz},
     {ExportFormat::collapsed, "collapsed", export_collapsed},
     {ExportFormat::speedscope, "speedscope", export_speedscope},
     {ExportFormat::perfetto, "perfetto", export_perfetto},
     {ExportFormat::csv, "csv", export_csv}}};

struct CostRow {
    ExportCost cost;
    const char* name;
};
constexpr std::array<CostRow, 3> kCosts = {
    {{ExportCost::end, "end"}, {ExportCost::peak, "peak"}, {ExportCost::allocated, "allocated"}}};

const FormatRow& row_of(ExportFormat format) {
    return *std::ranges::find(kFormats, format, &FormatRow::format);
}

int fail(const char* what, int code) {
    std::fprintf(stderr, "cachealloc: %s\n", what);
    return code;
}

/// A line that moves while it takes long.
class Progress {
  public:
    explicit Progress(bool shown) : shown_(shown) {}
    ~Progress() {
        if (percent_ >= 0) {
            std::fputs("\r\033[K", stderr);
        }
    }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void show(double share) {
        const int percent = static_cast<int>(std::clamp(share, 0.0, 1.0) * 100);
        if (shown_ && percent != percent_) {
            percent_ = percent;
            std::fprintf(stderr, "\rexporting: %d %% of this pass", percent);
        }
    }

  private:
    const bool shown_;
    int percent_ = -1;
};

/// What is lacking, once for each module, and what the formats cannot say.
void print_notes(const ExportJob& job) {
    for (const SymbolSource& source : job.stacks.sources()) {
        if (source.places != 0 && !source.note.empty()) {
            std::fprintf(stderr, "cachealloc: %s: %s\n", printable(source.path).c_str(),
                         printable(source.note).c_str());
        }
    }
    if (!job.history.whole()) {
        std::fprintf(stderr,
                     "cachealloc: the recording is not whole: it begins %.3f s after the "
                     "start; what was live then is there\n",
                     job.trace.clock.since_start(job.history.first_time()) / 1e9);
    }
}

void write_export(const ExportOptions& options) {
    Progress progress(options.progress);
    const Trace trace(options.file);
    std::error_code ignored;
    if (std::filesystem::equivalent(options.file, options.output, ignored)) {
        throw OutputError(options.output + " is the recording itself: choose another name");
    }
    OutputFile output(options.output, options.overwrite);
    if (options.symbols && debuginfod_in_use()) {
        std::fputs("cachealloc: DEBUGINFOD_URLS is set: symbols that are not here are asked for "
                   "there, which may take long\n",
                   stderr);
    }
    History history(trace, [&progress](double share) { progress.show(share); });
    StackSymbols stacks(trace, options.search, options.symbols);
    ExportJob job{trace, history, stacks, options, ExportWindow(trace, options), output};
    row_of(options.format).write(job);
    output.commit();
    print_notes(job);
}

} // namespace

int export_main(const ExportOptions& options) {
    if (std::isnan(options.from_seconds) || !(options.from_seconds <= options.to_seconds)) {
        return fail("--from must not be later than --to", kExitUsage);
    }
    try {
        write_export(options);
        return 0;
    } catch (const TraceError& error) {
        return fail(error.what(), kExitUnreadable);
    } catch (const OutputError& error) {
        return fail(error.what(), kExitUsage);
    } catch (const std::bad_alloc&) {
        return fail("not enough memory for this recording", kExitUnreadable);
    }
}

const char* export_format_name(ExportFormat format) {
    return row_of(format).name;
}

bool parse_export_format(const std::string& name, ExportFormat& format) {
    const auto row = std::ranges::find_if(
        kFormats, [&name](const FormatRow& candidate) { return name == candidate.name; });
    if (row == kFormats.end()) {
        return false;
    }
    format = row->format;
    return true;
}

bool parse_export_cost(const std::string& name, ExportCost& cost) {
    const auto row = std::ranges::find_if(
        kCosts, [&name](const CostRow& candidate) { return name == candidate.name; });
    if (row == kCosts.end()) {
        return false;
    }
    cost = row->cost;
    return true;
}

} // namespace cachealloc::tools
