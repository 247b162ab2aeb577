#include "tests/fuzz/consume.h"

#include "tools/analysis/history.h"
#include "tools/commands/check.h"
#include "tools/commands/diff.h"
#include "tools/commands/exit_codes.h"
#include "tools/commands/leaks.h"
#include "tools/commands/peak.h"
#include "tools/commands/report.h"
#include "tools/exports/export.h"
#include "tools/trace/trace.h"

#include <array>
#include <stdexcept>

namespace cachealloc::tests {

namespace {

using namespace cachealloc::tools;

/// Looks up whatever an event names.
class Follow final : public HistoryVisitor {
  public:
    explicit Follow(const Trace& trace) : trace_(trace) {}
    void on_event(const Event& event, const State&, const Block*) override {
        const Stack stack = trace_.stacks.find(event.stack);
        for (const trace::Frame frame : stack.frames) {
            const ModuleMatch match = trace_.modules.find(frame, stack.modules);
            sum_ += match.module == nullptr ? match.offset : match.module->path.size();
        }
    }

  private:
    const Trace& trace_;
    std::uint64_t sum_ = 0;
};

/// The file alone: no other file is opened for symbols.
ReadOptions reading(const std::string& path, bool json) {
    ReadOptions options;
    options.file = path;
    options.json = json;
    options.symbols = false;
    return options;
}

int run_command(const ReadOptions& read, std::uint64_t which) {
    switch (which) {
    case 0:
        return report_main(read);
    case 1: {
        LeakOptions options;
        options.read = read;
        return leaks_main(options);
    }
    case 2:
        return peak_main(read);
    case 3: {
        DiffOptions options;
        options.read = read;
        options.other = read.file;
        return diff_main(options);
    }
    default:
        return check_main(read);
    }
}

int run_export(const std::string& path, std::uint64_t which) {
    constexpr std::array kFormats{ExportFormat::memory_viz, ExportFormat::collapsed,
                                  ExportFormat::speedscope, ExportFormat::perfetto,
                                  ExportFormat::csv};
    ExportOptions options;
    options.file = path;
    options.format = kFormats[which % kFormats.size()];
    options.cost = static_cast<ExportCost>(which % 3);
    options.output.assign(1, '-'); // g++ 12 warns of a plain assignment: GCC bug 105329
    options.symbols = false;
    return export_main(options);
}

void require_fine(int code, const char* what) {
    if (code == kFine) return;
    std::string text(what);
    text.append(": status ").append(std::to_string(code));
    throw std::logic_error(text);
}

} // namespace

bool consume(const std::string& path, std::uint64_t choice) {
    try {
        const Trace trace(path);
        History history(trace);
        Follow follow(trace);
        history.visit(follow);
        const ReadOptions read = reading(path, choice % 2 == 0);
        require_fine(run_command(read, choice / 2 % 5), "a command");
        require_fine(run_export(path, choice / 8), "an export");
    } catch (const TraceError& error) {
        const std::string line = error.what();
        if (line.empty() || line.find('\n') != std::string::npos)
            throw std::logic_error("an error of other than one line: " + line);
        return false;
    }
    return true;
}

} // namespace cachealloc::tests
