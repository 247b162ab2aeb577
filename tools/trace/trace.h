#pragma once

#include "tools/trace/clock.h"
#include "tools/trace/event_stream.h"
#include "tools/trace/live_table.h"
#include "tools/trace/modules.h"
#include "tools/trace/stacks.h"
#include "tools/trace/tables.h"
#include "tools/trace/trace_file.h"

#include <string>

namespace cachealloc::tools {

/// A recording with all its parts. The events are indexed before the live table is read, and both
/// before the stacks: what an earlier part names, a later one holds, also while the process runs.
struct Trace {
    explicit Trace(std::string path);

    TraceFile file;
    EventStream events;
    LiveTable live;
    Stacks stacks;
    Modules modules;
    Threads threads;
    Devices devices;
    Statistics statistics;
    Settings settings;
    Clock clock;

    [[nodiscard]] const TraceHeader& header() const { return file.header(); }
    /// Whether the process that writes it was still there when it was opened. A copy is of no
    /// running process.
    [[nodiscard]] bool running() const { return running_; }

  private:
    bool running_;
};

} // namespace cachealloc::tools
