#include "tools/commands/report.h"

#include "tools/commands/exit_codes.h"

#include <cstdio>

namespace cachealloc::tools {

namespace {

constexpr std::size_t kHolders = 10; ///< in JSON; the screen has lengths of its own

} // namespace

const char* run_end_name(RunEnd end) {
    switch (end) {
    case RunEnd::running:
        return "running";
    case RunEnd::clean:
        return "clean";
    case RunEnd::killed:
        return "killed";
    case RunEnd::stopped:
        return "stopped";
    }
    return "unknown";
}

int report_main(const ReadOptions& options) {
    Recording recording(options);
    const Summary summary = summarize(recording.history, options.device);
    if (options.json) {
        const std::size_t top = options.top == 0 ? kHolders : options.top;
        print_json(report_json(recording, summary, recording.names, top));
    } else {
        const std::string text =
            report_text(recording, summary, recording.names, options.top, options.by_class);
        std::fputs(text.c_str(), stdout);
        print_symbol_notes(recording.names);
    }
    return kFine;
}

} // namespace cachealloc::tools
