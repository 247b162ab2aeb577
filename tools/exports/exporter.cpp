#include "tools/exports/exporter.h"

#include <set>

namespace cachealloc::tools {

std::vector<std::uint8_t> export_devices(const ExportJob& job) {
    std::set<std::uint8_t> found;
    for (const Device& device : job.trace.devices.all()) {
        found.insert(static_cast<std::uint8_t>(device.ordinal));
    }
    for (const State* state : {&job.history.start(), &job.history.end()}) {
        state->live().for_each(
            [&](const Place&, const Block& block) { found.insert(block.device); });
        for (const auto& [address, segment] : state->segments()) {
            found.insert(segment.device);
        }
    }
    std::vector<std::uint8_t> devices;
    for (const std::uint8_t device : found) {
        if (job.window.has_device(device)) {
            devices.push_back(device);
        }
    }
    return devices;
}

std::string program_name(const Trace& trace) {
    const std::string_view name = file_name(trace.settings["exe"]);
    return name.empty() ? "process" : std::string(name);
}

std::string thread_label(const Trace& trace, std::uint32_t number) {
    const Thread* thread = trace.threads.find(number);
    if (thread == nullptr) {
        return "unknown";
    }
    return (thread->name.empty() ? std::string("thread") : thread->name) + " (" +
           std::to_string(thread->os_id) + ")";
}

} // namespace cachealloc::tools
