// Writes Chrome's trace format, which ui.perfetto.dev and chrome://tracing read.
#pragma once

#include "tools/exports/output_file.h"
#include "tools/trace/trace.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace cachealloc::tools {

class ChromeTrace {
  public:
    /// Writes what the process and its threads are called.
    ChromeTrace(OutputFile& output, const Trace& trace);

    /// The front of a counter's lines, to be made once.
    [[nodiscard]] std::string counter_front(std::string_view name) const;
    void counter(std::string_view front, std::uint64_t ticks, std::uint64_t bytes);
    /// Something that happened at one moment in a thread.
    void mark(const Event& event);
    /// Ends the file.
    void finish();

  private:
    void name(std::string_view what, std::uint32_t thread, std::string_view name);
    void time(std::uint64_t ticks);
    void begin_line();

    OutputFile& output_;
    const Trace& trace_;
    bool begun_ = false;
};

} // namespace cachealloc::tools
