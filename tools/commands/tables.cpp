#include "tools/commands/tables.h"

#include "tools/commands/text.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

std::size_t shown(const std::vector<Holder>& holders, std::size_t top) {
    return top == 0 ? holders.size() : std::min(holders.size(), top);
}

} // namespace

std::string types_text(std::uint32_t types) {
    std::string text;
    for (std::uint8_t type = 1; type < trace::kMemoryTypes; ++type) {
        if ((types >> type & 1) == 0) continue;
        if (!text.empty()) text += ", ";
        text += trace::memory_name(static_cast<trace::MemoryType>(type));
    }
    return text;
}

std::string holders_text(const std::vector<Holder>& holders, std::uint64_t whole, std::size_t top,
                         StackNames& names) {
    std::string text;
    constexpr std::uint32_t kPooled = 1U << static_cast<unsigned>(trace::MemoryType::pooled);
    const std::size_t count = shown(holders, top);
    for (std::size_t i = 0; i < count; ++i) {
        const Holder& holder = holders[i];
        std::string line = fmt::format("  {:>9} {:>6} {:>8} {:6} ", bytes_text(holder.bytes),
                                       share_text(holder.bytes, whole), count_text(holder.blocks),
                                       holder.blocks == 1 ? "block" : "blocks");
        const std::string types =
            holder.types == kPooled ? "" : fmt::format(" [{}]", types_text(holder.types));
        line += names.brief(holder.stack, kColumns - line.size() - types.size()) + types;
        text += line + "\n";
    }
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
    for (std::size_t i = count; i < holders.size(); ++i) {
        bytes += holders[i].bytes;
        blocks += holders[i].blocks;
    }
    if (count < holders.size())
        text += fmt::format("  {:>9} {:>6} {:>8} {:6} {} stacks more\n", bytes_text(bytes),
                            share_text(bytes, whole), count_text(blocks),
                            blocks == 1 ? "block" : "blocks", count_text(holders.size() - count));
    return text;
}

std::string frames_text(std::uint32_t stack, std::size_t most, StackNames& names) {
    const std::vector<NamedFrame>& frames = names.frames(stack);
    if (frames.empty()) return "      (no stack)\n";
    std::string text;
    std::size_t lines = 0;
    for (std::size_t i = 0; i < frames.size(); ++i) {
        // Of the frames inside CUDA, the one that the program called tells all.
        if (frames[i].cuda && i + 1 < frames.size() && frames[i + 1].cuda) continue;
        if (lines++ == most) {
            text += fmt::format("      .. {} frames more\n", frames.size() - i);
            return text;
        }
        text += "      " + frame_text(frames[i]) + (frames[i].inlined ? " [inlined]" : "") + "\n";
    }
    return text;
}

Json frames_json(std::uint32_t stack, StackNames& names) {
    Json frames = Json::array();
    for (const NamedFrame& frame : names.frames(stack)) {
        frames.push_back({{"function", frame.function},
                          {"file", frame.file},
                          {"line", frame.line},
                          {"module", frame.module},
                          {"build_id", frame.build_id},
                          {"offset", frame.offset},
                          {"inlined", frame.inlined}});
    }
    return frames;
}

Json holders_json(const std::vector<Holder>& holders, std::size_t top, const Clock& clock,
                  StackNames& names) {
    Json list = Json::array();
    for (std::size_t i = 0; i < shown(holders, top); ++i) {
        const Holder& holder = holders[i];
        Json one{{"bytes", holder.bytes},     {"blocks", holder.blocks},
                 {"largest", holder.largest}, {"types", types_text(holder.types)},
                 {"stack", holder.stack},     {"frames", frames_json(holder.stack, names)}};
        if (holder.oldest != 0) one["oldest_seconds"] = clock.since_start(holder.oldest) / 1e9;
        list.push_back(std::move(one));
    }
    return list;
}

void print_json(const Json& document) {
    const std::string text =
        document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
}

} // namespace cachealloc::tools
