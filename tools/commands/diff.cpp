#include "tools/commands/diff.h"

#include "tools/analysis/holders.h"
#include "tools/analysis/peaks.h"
#include "tools/commands/exit_codes.h"
#include "tools/commands/tables.h"
#include "tools/commands/text.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

constexpr std::size_t kStacks = 10;
constexpr std::size_t kFrames = 12;

/// What one recording says about a stack. The fields are in the order of DiffBy.
struct Usage {
    std::array<std::uint64_t, 3> bytes{};
    std::array<std::uint64_t, 3> blocks{};
};

struct Compared {
    std::array<Usage, 2> usage;
    std::array<std::uint32_t, 2> stack{}; ///< a stack with that key, 0 for none
    [[nodiscard]] std::int64_t growth(DiffBy by) const {
        const auto field = static_cast<std::size_t>(by);
        return static_cast<std::int64_t>(usage[1].bytes[field] - usage[0].bytes[field]);
    }
    [[nodiscard]] bool changed() const {
        return usage[0].bytes != usage[1].bytes || usage[0].blocks != usage[1].blocks;
    }
};

using ByKey = std::map<std::string, Compared>;

void add_holders(ByKey& all, std::size_t side, DiffBy by, const std::vector<Holder>& holders,
                 StackNames& names) {
    const auto field = static_cast<std::size_t>(by);
    for (const Holder& holder : holders) {
        Compared& one = all[names.key(holder.stack)];
        one.stack[side] = holder.stack;
        one.usage[side].bytes[field] += holder.bytes;
        one.usage[side].blocks[field] += holder.blocks;
    }
}

void add_recording(ByKey& all, std::size_t side, Recording& recording, int device) {
    const HolderFilter filter{.device = device, .host_memory = true};
    add_holders(all, side, DiffBy::live, holders_of(recording.history.end(), filter),
                recording.names);
    Peaks peaks;
    recording.history.visit(peaks);
    peaks.compare(recording.history);
    Snapshots snapshots;
    for (std::uint8_t ordinal = 0; ordinal < trace::kDevices; ++ordinal) {
        if (!peaks.device(ordinal).used || (device >= 0 && ordinal != device)) continue;
        snapshots.add(peaks.device(ordinal).live,
                      [&all, side, ordinal, &recording](const State& s) {
                          add_holders(all, side, DiffBy::peak, holders_of(s, {.device = ordinal}),
                                      recording.names);
                      });
    }
    recording.history.visit(snapshots);
    const auto field = static_cast<std::size_t>(DiffBy::allocated);
    const std::uint32_t largest = recording.trace.stacks.largest();
    Progress naming("naming stacks"); // reads the symbols of every module that allocates
    for (std::uint32_t number = 1; number <= largest; ++number) {
        naming.show(static_cast<double>(number) / largest);
        const Stack stack = recording.trace.stacks.find(number);
        if (stack.allocations == 0) continue;
        Compared& one = all[recording.names.key(number)];
        one.stack[side] = number;
        one.usage[side].bytes[field] += stack.bytes;
        one.usage[side].blocks[field] += stack.allocations;
    }
}

std::string change_text(const Compared& one, DiffBy by) {
    const auto field = static_cast<std::size_t>(by);
    return fmt::format("{} ({} -> {}; {} -> {} allocations)", bytes_change_text(one.growth(by)),
                       bytes_text(one.usage[0].bytes[field]), bytes_text(one.usage[1].bytes[field]),
                       count_text(one.usage[0].blocks[field]),
                       count_text(one.usage[1].blocks[field]));
}

Json usage_json(const Usage& usage) {
    return {{"live_bytes", usage.bytes[0]},      {"live_allocations", usage.blocks[0]},
            {"peak_bytes", usage.bytes[1]},      {"peak_allocations", usage.blocks[1]},
            {"allocated_bytes", usage.bytes[2]}, {"allocations", usage.blocks[2]}};
}

} // namespace

int diff_main(const DiffOptions& options) {
    Recording before(options.read);
    ReadOptions read_after = options.read;
    read_after.file = options.other;
    Recording after(read_after);
    ByKey all;
    add_recording(all, 0, before, options.read.device);
    add_recording(all, 1, after, options.read.device);

    std::vector<const Compared*> order;
    std::int64_t most = 0;
    std::uint64_t sums[2] = {0, 0};
    for (const auto& [key, one] : all) {
        most = std::max(most, one.growth(options.by));
        for (const std::size_t side : {0U, 1U})
            sums[side] += one.usage[side].bytes[static_cast<std::size_t>(options.by)];
        if (one.changed()) order.push_back(&one);
    }
    std::ranges::stable_sort(order, std::greater<>(), [&](const Compared* one) {
        const std::int64_t growth = one->growth(options.by);
        // What grew comes first, then what shrank, each with the largest change first.
        return growth >= 0 ? std::pair{1, growth} : std::pair{0, -(growth + 1)};
    });
    static constexpr const char* kTitles[] = {"live at the end", "live at the peak", "allocated"};
    const std::size_t top = options.read.top == 0 ? kStacks : options.read.top;
    const auto frames_from = [](const Compared& one) { return one.stack[1] != 0 ? 1U : 0U; };
    Recording* const sides[2] = {&before, &after};
    if (options.read.json) {
        Json list = Json::array();
        for (std::size_t i = 0; i < std::min(order.size(), top); ++i) {
            const std::size_t side = frames_from(*order[i]);
            list.push_back({{"growth", order[i]->growth(options.by)},
                            {"before", usage_json(order[i]->usage[0])},
                            {"after", usage_json(order[i]->usage[1])},
                            {"frames", frames_json(order[i]->stack[side], sides[side]->names)}});
        }
        print_json({{"before", before.trace.file.path()},
                    {"after", after.trace.file.path()},
                    {"before_bytes", sums[0]},
                    {"after_bytes", sums[1]},
                    {"changed_stacks", order.size()},
                    {"stacks", std::move(list)}});
    } else {
        fmt::print("{}: {} -> {} ({}); {} of {} stacks changed\n",
                   kTitles[static_cast<std::size_t>(options.by)], bytes_text(sums[0]),
                   bytes_text(sums[1]),
                   bytes_change_text(static_cast<std::int64_t>(sums[1] - sums[0])),
                   count_text(order.size()), count_text(all.size()));
        for (std::size_t i = 0; i < std::min(order.size(), top); ++i) {
            const std::size_t side = frames_from(*order[i]);
            fmt::print("\n  {}\n{}", change_text(*order[i], options.by),
                       frames_text(order[i]->stack[side], kFrames, sides[side]->names));
        }
        if (order.size() > top) fmt::print("\n  {} stacks more: --top\n", order.size() - top);
        print_symbol_notes(after.names);
    }
    return options.fail_from && most >= 0 && static_cast<std::uint64_t>(most) >= *options.fail_from
               ? kFindings
               : kFine;
}

} // namespace cachealloc::tools
