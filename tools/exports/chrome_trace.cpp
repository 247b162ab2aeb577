#include "tools/exports/chrome_trace.h"

#include "tools/exports/exporter.h"
#include "tools/exports/text.h"

#include <algorithm>

namespace cachealloc::tools {

ChromeTrace::ChromeTrace(OutputFile& output, const Trace& trace) : output_(output), trace_(trace) {
    output_.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    name("process_name", 0, program_name(trace));
    for (const Thread& thread : trace.threads.all()) {
        name("thread_name", thread.os_id, thread.name);
    }
}

void ChromeTrace::begin_line() {
    output_.write(begun_ ? ",\n" : "\n");
    begun_ = true;
}

void ChromeTrace::name(std::string_view what, std::uint32_t thread, std::string_view name) {
    begin_line();
    output_.write("{\"ph\":\"M\",\"name\":" + json_string(what) + ",\"pid\":");
    output_.write_number(trace_.header().pid);
    output_.write(",\"tid\":");
    output_.write_number(thread);
    output_.write(",\"args\":{\"name\":" + json_string(name) + "}}");
}

void ChromeTrace::time(std::uint64_t ticks) {
    // Microseconds since the start, with three digits behind the point.
    const double since = std::clamp(trace_.clock.since_start(ticks), 0.0, 1e18);
    const auto nanoseconds = static_cast<std::uint64_t>(since);
    output_.write_number(nanoseconds / 1000);
    const auto rest = static_cast<unsigned>(nanoseconds % 1000);
    const char digits[] = {'.', static_cast<char>('0' + rest / 100),
                           static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
    output_.write(std::string_view(digits, sizeof digits));
}

std::string ChromeTrace::counter_front(std::string_view name) const {
    return "{\"ph\":\"C\",\"name\":" + json_string(name) +
           ",\"pid\":" + std::to_string(trace_.header().pid) + ",\"ts\":";
}

void ChromeTrace::counter(std::string_view front, std::uint64_t ticks, std::uint64_t bytes) {
    begin_line();
    output_.write(front);
    time(ticks);
    output_.write(",\"args\":{\"bytes\":");
    output_.write_number(bytes);
    output_.write("}}");
}

void ChromeTrace::mark(const Event& event) {
    begin_line();
    const Thread* thread = trace_.threads.find(event.thread);
    output_.write("{\"ph\":\"i\",\"s\":\"t\",\"name\":" +
                  json_string(trace::kind_name(event.kind)) + ",\"pid\":");
    output_.write_number(trace_.header().pid);
    output_.write(",\"tid\":");
    output_.write_number(thread != nullptr ? thread->os_id : 0);
    output_.write(",\"ts\":");
    time(event.time);
    output_.write(",\"args\":{\"device\":");
    output_.write_number(unsigned{event.device});
    output_.write(",\"bytes\":");
    output_.write_number(event.size);
    output_.write(",\"address\":\"0x");
    output_.write_number(event.address, 16);
    output_.write("\"}}");
}

void ChromeTrace::finish() {
    output_.write("\n]}\n");
}

} // namespace cachealloc::tools
