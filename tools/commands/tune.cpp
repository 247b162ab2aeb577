#include "tools/commands/tune.h"

#include "tools/commands/exit_codes.h"
#include "tools/commands/reading.h"
#include "tools/commands/replay.h"
#include "tools/commands/text.h"
#include "tools/replay/offline_greedy.h"
#include "tools/replay/rule_policies.h"
#include "tools/replay/sequence_file.h"
#include "tools/replay/tuner.h"

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

struct Row {
    std::string label;
    std::string conf; ///< of the pool itself
    ReplayResult result;
    const char* lack = ""; ///< why it cannot be chosen
};

std::vector<Row> rows_of(const AllocationSequence& sequence, const TuneOutcome& outcome,
                         unsigned steps) {
    std::vector<Row> rows;
    const auto add = [&rows](const char* label, const Tuned& tuned) {
        const char* const lack = !tuned.result.fits() ? "  does not fit"
                                 : !tuned.within      ? "  too many calls"
                                                      : "";
        rows.push_back({label, tuned.conf, tuned.result, lack});
    };
    add("default", outcome.standard);
    add("tuned", outcome.tuned);
    add("expandable", outcome.expandable);
    add("expandable, tuned", outcome.expandable_tuned);
    rows.push_back({"PyTorch's rules", "", replay_rules(sequence, Rules::pytorch, steps)});
    rows.push_back({"PyTorch's rules, expandable", "",
                    replay_rules(sequence, Rules::pytorch_expandable, steps)});
    rows.push_back({"best fit in one range", "", replay_rules(sequence, Rules::one_range, steps)});
    if (sequence.ids <= kMostOffline)
        rows.push_back({"best offline placement", "", replay_greedy(sequence)});
    return rows;
}

bool is_expandable(const std::string& conf) {
    ParseReport ignored;
    return parse_options(conf, ignored).expandable_segments;
}

std::string caveat(const AllocationSequence& sequence) {
    const bool exported = sequence.recorded && sequence.recorded->exported;
    return exported ? "This program shared memory with other processes (IPC). Memory of expandable "
                      "segments cannot be exported: what is allocated before the first export "
                      "would be refused. Take the line `tuned` instead unless it exports first."
                    : "Memory of expandable segments cannot be exported by IPC handles: do not use "
                      "it where processes share tensors.";
}

void print_tuned(const AllocationSequence& sequence, const TuneOutcome& outcome,
                 const std::vector<Row>& rows, double most_calls) {
    const Tuned& best = outcome.best();
    fmt::print("{}: {} allocations, peak live {}; {} replays\n\n", sequence.name,
               count_text(sequence.ids), bytes_text(best.result.peak_requested), outcome.replays);
    fmt::print("{:<28} {:>10} {:>7} {:>12} {:>13}\n", "", "reserved", "ratio", "remaps/step",
               "calls/step");
    for (const Row& row : rows) {
        const bool offline =
            row.label == "best offline placement"; // it never reuses anything in time
        fmt::print("{:<28} {:>10} {:>7}", row.label, bytes_text(row.result.peak_reserved),
                   ratio_text(row.result.ratio()));
        if (!offline)
            fmt::print(" {:>12.2f} {:>13.2f}", row.result.per_step(row.result.steady.remaps),
                       row.result.per_step(row.result.steady.changes()));
        fmt::print("{}\n", row.lack);
    }
    if (sequence.ids > kMostOffline)
        fmt::print("{:<28} not tried: more than {} allocations\n", "best offline placement",
                   count_text(kMostOffline));
    if (sequence.recorded && sequence.recorded->peak_requested != 0)
        fmt::print("{:<28} {:>10} {:>7}\n", "on the device, as recorded",
                   bytes_text(sequence.recorded->peak_reserved),
                   ratio_text(static_cast<double>(sequence.recorded->peak_reserved) /
                              static_cast<double>(sequence.recorded->peak_requested)));
    fmt::print("\n");
    if (!best.within)
        fmt::print("No options keep to {} driver calls a step; these come nearest.\n", most_calls);
    if (best.conf.empty()) {
        fmt::print("The defaults are best: set nothing. Predicted ratio {}.\n",
                   ratio_text(best.result.ratio()));
    } else {
        fmt::print("CACHEALLOC_CONF={}\n", best.conf);
        fmt::print("Predicted ratio {} (default {}).\n", ratio_text(best.result.ratio()),
                   ratio_text(outcome.standard.result.ratio()));
    }
    if (is_expandable(best.conf)) fmt::print("{}", wrapped(caveat(sequence), 0, kColumns));
}

void print_tuned_json(const AllocationSequence& sequence, const TuneOutcome& outcome,
                      const std::vector<Row>& rows, double most_calls) {
    const Tuned& best = outcome.best();
    Json list = Json::array();
    for (const Row& row : rows) {
        Json one{{"label", row.label}, {"conf", row.conf}};
        one.update(replay_json(row.result));
        list.push_back(std::move(one));
    }
    Json document{{"file", sequence.name},
                  {"allocations", sequence.ids},
                  {"recorded", recorded_json(sequence)},
                  {"max_driver_calls", most_calls},
                  {"conf", best.conf},
                  {"ratio", best.result.ratio()},
                  {"peak_reserved", best.result.peak_reserved},
                  {"within_bound", best.within},
                  {"replays", outcome.replays},
                  {"rows", std::move(list)}};
    document["caveat"] = is_expandable(best.conf) ? Json(caveat(sequence)) : Json();
    print_json(document);
}

} // namespace

int tune_main(const TuneOptions& options) {
    const std::string file = chosen_file(options.file);
    AllocationSequence sequence;
    {
        Progress progress("Reading " + file);
        sequence = read_sequence(file, options.pool, [&](double share) { progress.show(share); });
    }
    Progress progress("Searching");
    const TuneSettings settings{options.most_calls, options.steps,
                                options_to_keep(recorded_conf(sequence)),
                                [&](double share) { progress.show(share); }};
    const TuneOutcome outcome = tune(sequence, settings);
    const std::vector<Row> rows = rows_of(sequence, outcome, options.steps);
    const auto print = options.json ? print_tuned_json : print_tuned;
    print(sequence, outcome, rows, options.most_calls);
    return kFine;
}

} // namespace cachealloc::tools
