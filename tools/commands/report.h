#pragma once

#include "tools/analysis/summary.h"
#include "tools/commands/reading.h"
#include "tools/commands/tables.h"

#include <string>

namespace cachealloc::tools {

/// `cachealloc report`: one screen about a recording. Gives the exit code; throws TraceError.
int report_main(const ReadOptions& options);

/// The screen; `top` holders a list, or as many as there is room for where it is 0. `by_class` as
/// memory_table().
[[nodiscard]] std::string report_text(const Recording& recording, const Summary& summary,
                                      StackNames& names, std::size_t top, bool by_class);
[[nodiscard]] Json report_json(const Recording& recording, const Summary& summary,
                               StackNames& names, std::size_t top);

/// "running", "clean" ..
[[nodiscard]] const char* run_end_name(RunEnd end);

} // namespace cachealloc::tools
