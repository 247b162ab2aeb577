#include "tools/replay/text_sequences.h"

#include "tools/analysis/flat_map.h"
#include "tools/trace/event.h"
#include "tools/trace/tables.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMostIds = std::numeric_limits<std::uint32_t>::max();

void check_room(const TextLines& lines, std::uint64_t ids) {
    if (ids >= kMostIds) lines.fail(fmt::format("at most {} allocations are allowed", kMostIds));
}

} // namespace

AllocationSequence read_events(TextLines& lines) {
    AllocationSequence sequence;
    FlatMap<std::uint32_t> live;    // by the file's ids
    FlatMap<std::uint32_t> streams; // by the file's numbers
    std::string_view line;
    while (lines.next(line)) {
        if (line.empty()) continue;
        const auto& fields = lines.fields(line, 6);
        const Place id{lines.number(fields[1], "id", 0, kAny), 0};
        if (fields[0] == "f") {
            const std::uint32_t* const known = live.find(id);
            if (known == nullptr)
                lines.fail(fmt::format("id {} is freed and not live", id.address));
            sequence.release(*known);
            live.erase(id);
            continue;
        }
        if (fields[0] != "a")
            lines.fail(fmt::format("op is '{}'; a (allocate) and f (free) are allowed",
                                   printable(fields[0].substr(0, 40))));
        if (live.find(id) != nullptr)
            lines.fail(fmt::format("id {} is allocated and live already", id.address));
        check_room(lines, sequence.ids);
        const std::uint64_t bytes = lines.number(fields[2], "bytes", 1, Event::kLargestSize);
        const Place stream{lines.number(fields[3], "stream", 0, kAny), 0};
        if (streams.find(stream) == nullptr)
            streams.insert(stream, static_cast<std::uint32_t>(streams.size()));
        live.insert(id, sequence.allocate(bytes, *streams.find(stream)));
    }
    sequence.streams = std::max(1U, static_cast<std::uint32_t>(streams.size()));
    return sequence;
}

AllocationSequence read_intervals(TextLines& lines) {
    struct Moment {
        std::uint64_t time;
        bool begins; ///< ends sort first
        std::uint32_t buffer;
    };
    std::vector<std::uint64_t> bytes;
    std::vector<Moment> moments;
    std::string_view line;
    while (lines.next(line)) {
        if (line.empty()) continue;
        check_room(lines, bytes.size());
        const auto& fields = lines.fields(line, 4);
        const std::uint64_t lower = lines.number(fields[1], "lower", 0, kAny - 1);
        const std::uint64_t upper = lines.number(fields[2], "upper", lower + 1, kAny);
        const auto buffer = static_cast<std::uint32_t>(bytes.size());
        bytes.push_back(lines.number(fields[3], "size", 1, Event::kLargestSize));
        moments.push_back({lower, true, buffer});
        moments.push_back({upper, false, buffer});
    }
    std::ranges::sort(moments, [](const Moment& a, const Moment& b) {
        return std::tie(a.time, a.begins, a.buffer) < std::tie(b.time, b.begins, b.buffer);
    });
    AllocationSequence sequence;
    std::vector<std::uint32_t> ids(bytes.size());
    for (const Moment& moment : moments) {
        if (moment.begins) {
            ids[moment.buffer] = sequence.allocate(bytes[moment.buffer]);
        } else {
            sequence.release(ids[moment.buffer]);
        }
    }
    return sequence;
}

} // namespace cachealloc::tools
