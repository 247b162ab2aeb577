// Formats of flame graphs: collapsed stacks (flamegraph.pl, inferno) and speedscope.
#include "tools/exports/exporter.h"
#include "tools/exports/stack_costs.h"
#include "tools/exports/text.h"

#include <algorithm>
#include <map>

namespace cachealloc::tools {
namespace {

constexpr std::string_view kNoStack = "[no stack]";

/// A function's name as a part of a line: without what separates parts and lines.
std::string part(std::string_view function) {
    std::string name(function);
    std::ranges::replace_if(
        name, [](char c) { return c == ';' || static_cast<unsigned char>(c) < ' '; }, ':');
    return name;
}

void write_profile(OutputFile& output, std::string_view name, std::string_view unit,
                   std::uint64_t StackCost::*value, const std::vector<std::string>& samples,
                   const std::map<std::uint32_t, StackCost>& costs) {
    std::uint64_t total = 0;
    for (const auto& [stack, cost] : costs) {
        total += cost.*value;
    }
    output.write(R"({"type":"sampled","name":)" + json_string(name) + R"(,"unit":")");
    output.write(unit);
    output.write(R"(","startValue":0,"endValue":)");
    output.write_number(total);
    output.write(R"(,"samples":[)");
    std::string_view separator;
    for (const std::string& sample : samples) {
        output.write(separator);
        output.write(sample);
        separator = ",\n";
    }
    output.write(R"(],"weights":[)");
    separator = {};
    for (const auto& [stack, cost] : costs) {
        output.write(separator);
        output.write_number(cost.*value);
        separator = ",";
    }
    output.write("]}");
}

std::string cost_name(ExportCost cost) {
    switch (cost) {
    case ExportCost::end:
        return "live at the end";
    case ExportCost::peak:
        return "live at the peak";
    case ExportCost::allocated:
        return "allocated";
    }
    return {};
}

} // namespace

void export_collapsed(ExportJob& job) {
    // Stacks that differ in lines alone are one.
    std::map<std::string, std::uint64_t> lines;
    for (const auto& [stack, cost] : stack_costs(job)) {
        std::string line;
        const auto frames = job.stacks.frames(stack);
        for (auto id = frames.rbegin(); id != frames.rend(); ++id) {
            line += line.empty() ? "" : ";";
            line += part(job.stacks.frame(*id).function);
        }
        lines[line.empty() ? std::string(kNoStack) : line] += cost.bytes;
    }
    for (const auto& [line, bytes] : lines) {
        job.output.write(line);
        job.output.write(' ');
        job.output.write_number(bytes);
        job.output.write('\n');
    }
}

void export_speedscope(ExportJob& job) {
    const std::map<std::uint32_t, StackCost> costs = stack_costs(job);
    // Samples first: what they name is then known.
    std::vector<std::string> samples;
    for (const auto& [stack, cost] : costs) {
        std::string sample = "[";
        const auto frames = job.stacks.frames(stack);
        for (auto id = frames.rbegin(); id != frames.rend(); ++id) {
            sample += std::to_string(*id + 1);
            sample += ',';
        }
        if (sample.size() == 1) {
            sample += "0,"; // kNoStack
        }
        sample.back() = ']';
        samples.push_back(std::move(sample));
    }
    OutputFile& output = job.output;
    output.write(R"({"$schema":"https://www.speedscope.app/file-format-schema.json",)"
                 R"("exporter":"cachealloc","activeProfileIndex":0,"name":)");
    output.write(json_string(program_name(job.trace) + ", " + cost_name(job.options.cost)));
    output.write(R"(,"shared":{"frames":[{"name":)" + json_string(kNoStack) + "}");
    for (std::size_t id = 0; id < job.stacks.frame_count(); ++id) {
        const SourceFrame& frame = job.stacks.frame(static_cast<StackSymbols::FrameId>(id));
        output.write(",\n{\"name\":" + json_string(frame.function));
        if (!frame.file.empty()) {
            output.write(",\"file\":" + json_string(frame.file));
        }
        if (frame.line != 0) {
            output.write(",\"line\":");
            output.write_number(frame.line);
        }
        output.write('}');
    }
    output.write("]},\n\"profiles\":[");
    write_profile(output, "bytes", "bytes", &StackCost::bytes, samples, costs);
    output.write(",\n");
    write_profile(output, "allocations", "none", &StackCost::count, samples, costs);
    output.write("]}\n");
}

} // namespace cachealloc::tools
