#include "tools/commands/replay.h"

#include "tools/commands/exit_codes.h"
#include "tools/commands/options.h"
#include "tools/commands/reading.h"
#include "tools/commands/text.h"
#include "tools/replay/offline_greedy.h"
#include "tools/replay/rule_policies.h"
#include "tools/replay/sequence_file.h"

#include <algorithm>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

struct Replayed {
    std::string file;
    std::string conf; ///< of the pool itself
    AllocationSequence sequence;
    ReplayResult result;
};

Options options_of(const std::string& conf) {
    ParseReport ignored; // said by check_conf(), or written by another version
    return parse_options(conf, ignored);
}

ReplayResult run(const Replayed& one, const ReplayOptions& options) {
    const AllocationSequence& sequence = one.sequence;
    switch (options.policy) {
    case ReplayPolicy::ours:
        break;
    case ReplayPolicy::pytorch:
        return replay_rules(sequence, Rules::pytorch, options.steps, options.limit);
    case ReplayPolicy::pytorch_expandable:
        return replay_rules(sequence, Rules::pytorch_expandable, options.steps, options.limit);
    case ReplayPolicy::greedy:
        if (sequence.ids > kMostOffline)
            throw TraceError(fmt::format("{}: {} allocations; --policy greedy takes at most {}",
                                         one.file, sequence.ids, kMostOffline));
        return replay_greedy(sequence, options.limit);
    }
    return replay_pool(sequence, {options_of(one.conf), options.limit, options.steps, true});
}

Replayed replayed(const std::string& file, const ReplayOptions& options) {
    Replayed one;
    one.file = file;
    {
        Progress progress("Reading " + file);
        one.sequence =
            read_sequence(file, options.pool, [&](double share) { progress.show(share); });
    }
    one.conf = options.conf ? *options.conf : recorded_conf(one.sequence);
    one.result = run(one, options);
    return one;
}

std::string calls_text(const DriverCalls& calls) {
    std::string text;
    const auto add = [&text](std::uint64_t count, const char* what) {
        if (count != 0)
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count_text(count), what);
    };
    add(calls.allocate, "allocations");
    add(calls.release, "releases");
    add(calls.grow, "growths");
    add(calls.shrink, "unmappings");
    add(calls.remaps, "remaps");
    add(calls.drop, "second mappings dropped");
    return text.empty() ? "none" : text;
}

void print_failure(const ReplayFailure& failure) {
    fmt::print("  DOES NOT FIT {}: event {} asks for {}; live {}, reserved {}, largest free {}\n",
               bytes_text(failure.limit), count_text(failure.event), bytes_text(failure.bytes),
               bytes_text(failure.live), bytes_text(failure.reserved),
               bytes_text(failure.largest_free));
}

void print_recorded(const RecordedRun& run) {
    const double live = static_cast<double>(run.peak_requested);
    fmt::print("  on the device   peak reserved {}, {} of peak live{}\n",
               bytes_text(run.peak_reserved),
               ratio_text(live == 0 ? 0 : static_cast<double>(run.peak_reserved) / live),
               run.whole ? "" : " (the recording is not whole: at least so much)");
    if (run.pools > 1)
        fmt::print("  pool {} of {} (--pool chooses another)\n", run.pool, run.pools);
}

void print_one(const Replayed& one, const ReplayOptions& options) {
    const ReplayResult& is = one.result;
    fmt::print("{}: {} allocations, {} events, by {}\n", one.file, count_text(one.sequence.ids),
               count_text(one.sequence.events.size()), is.policy);
    if (options.policy == ReplayPolicy::ours && !one.conf.empty())
        fmt::print("{}", wrapped("options         " + one.conf, 2, kColumns));
    fmt::print("  peak live       {} asked for, {} handed out\n", bytes_text(is.peak_requested),
               bytes_text(is.peak_rounded));
    fmt::print("  peak reserved   {}, {} of peak live\n", bytes_text(is.peak_reserved),
               ratio_text(is.ratio()));
    if (one.sequence.recorded) print_recorded(*one.sequence.recorded);
    fmt::print("  driver          {} ({} single calls)\n", calls_text(is.calls),
               count_text(is.calls.single));
    if (is.steady_steps > 0)
        fmt::print("  a steady step   {:.2f} driver calls, {:.2f} of them remaps\n",
                   is.per_step(is.steady.changes()), is.per_step(is.steady.remaps));
    fmt::print("  blocks          {} splits, {} stitches, {} places found again\n",
               count_text(is.splits), count_text(is.stitches), count_text(is.affinity_hits));
    if (is.fragmentation) {
        const Fragmentation& at = *is.fragmentation;
        fmt::print(
            "  at the peak     live {}, rounding {}, free beside live blocks (hard) {}, free "
            "alone (soft) {}, unfinished {}, largest free {}\n",
            bytes_text(at.live), bytes_text(at.rounding), bytes_text(at.hard), bytes_text(at.soft),
            bytes_text(at.stream), bytes_text(at.largest_free));
    }
    if (is.seconds > 0)
        fmt::print("  speed           {:.1f} million events a second\n",
                   static_cast<double>(is.events) / is.seconds / 1e6);
    if (is.failure) {
        print_failure(*is.failure);
    } else if (options.limit != SimulatedSource::kNoLimit) {
        fmt::print("  FITS {}\n", bytes_text(options.limit));
    }
}

void print_table(const std::vector<Replayed>& all, const ReplayOptions& options) {
    fmt::print("By {}\n{:<28} {:>10} {:>10} {:>10} {:>7} {:>10} {:>9} {:>8}\n",
               options.policy == ReplayPolicy::greedy ? "the best offline placement"
                                                      : all.front().result.policy,
               "file", "allocations", "live", "reserved", "ratio", "calls/step", "remaps/st",
               "device");
    for (const Replayed& one : all) {
        const ReplayResult& is = one.result;
        std::string device = "-";
        if (one.sequence.recorded && one.sequence.recorded->peak_requested != 0)
            device = ratio_text(static_cast<double>(one.sequence.recorded->peak_reserved) /
                                static_cast<double>(one.sequence.recorded->peak_requested));
        fmt::print("{:<28} {:>10} {:>10} {:>10} {:>7} {:>10.2f} {:>9.2f} {:>8}\n",
                   cut(base_name(one.file), 28), count_text(one.sequence.ids),
                   bytes_text(is.peak_requested), bytes_text(is.peak_reserved),
                   ratio_text(is.ratio()), is.per_step(is.steady.changes()),
                   is.per_step(is.steady.remaps), device);
        if (is.failure) print_failure(*is.failure);
    }
}

Json one_json(const Replayed& one, const ReplayOptions& options) {
    Json json{{"file", one.file},
              {"allocations", one.sequence.ids},
              {"events", one.sequence.events.size()},
              {"streams", one.sequence.streams},
              {"threads", one.sequence.threads},
              {"recorded", recorded_json(one.sequence)},
              {"options", options.policy == ReplayPolicy::ours
                              ? Json(format_options(options_of(one.conf)))
                              : Json()}};
    json.update(replay_json(one.result));
    return json;
}

/// What --conf asks for that a replay would not show is refused rather than passed over.
bool can_be_shown(const ReplayOptions& options) {
    if (!options.conf) return true;
    if (!check_conf(*options.conf, "--conf")) return false;
    const char* reason = nullptr;
    const Options wanted = options_of(*options.conf);
    if (options.policy != ReplayPolicy::ours) {
        reason = "is about the pool; leave it or --policy out";
    } else if (wanted.off || !wanted.pool) {
        reason = "switches the pool off, and a replay is about nothing else";
    }
    if (reason != nullptr)
        fmt::print(stderr, "cachealloc: replay: --conf {} {}\n", *options.conf, reason);
    return reason == nullptr;
}

} // namespace

std::string ratio_text(double ratio) {
    return fmt::format("{:.3f}", ratio);
}

std::string recorded_conf(const AllocationSequence& sequence) {
    return sequence.recorded ? sequence.recorded->options : std::string();
}

Json recorded_json(const AllocationSequence& sequence) {
    if (!sequence.recorded) return nullptr;
    const RecordedRun& run = *sequence.recorded;
    return {{"peak_reserved", run.peak_reserved},
            {"peak_live", run.peak_requested},
            {"pool", run.pool},
            {"pools", run.pools},
            {"device", run.device},
            {"whole", run.whole}};
}

Json replay_json(const ReplayResult& is) {
    const auto counts = [](const DriverCalls& calls) {
        return Json{{"all", calls.changes()},
                    {"allocate", calls.allocate},
                    {"release", calls.release},
                    {"grow", calls.grow},
                    {"unmap", calls.shrink},
                    {"remap", calls.remaps},
                    {"drop", calls.drop},
                    {"pieces", calls.pieces},
                    {"piece_maps", calls.piece_maps},
                    {"single", calls.single}};
    };
    Json json{{"policy", is.policy},
              {"peak_live", is.peak_requested},
              {"peak_live_rounded", is.peak_rounded},
              {"peak_reserved", is.peak_reserved},
              {"ratio", is.ratio()},
              {"driver_calls", counts(is.calls)},
              {"steady",
               {{"steps", is.steady_steps},
                {"driver_calls", counts(is.steady)},
                {"driver_calls_per_step", is.per_step(is.steady.changes())},
                {"remaps_per_step", is.per_step(is.steady.remaps)}}},
              {"splits", is.splits},
              {"stitches", is.stitches},
              {"affinity_hits", is.affinity_hits},
              {"seconds", is.seconds},
              {"fits", is.fits()}};
    if (is.fragmentation) {
        const Fragmentation& at = *is.fragmentation;
        json["fragmentation"] = {{"reserved", at.reserved},
                                 {"live", at.live},
                                 {"rounding", at.rounding},
                                 {"hard", at.hard},
                                 {"soft", at.soft},
                                 {"stream", at.stream},
                                 {"largest_free", at.largest_free}};
    }
    if (is.failure) {
        json["failure"] = {
            {"limit", is.failure->limit},       {"event", is.failure->event},
            {"bytes", is.failure->bytes},       {"live", is.failure->live},
            {"reserved", is.failure->reserved}, {"largest_free", is.failure->largest_free}};
    }
    return json;
}

int replay_main(const ReplayOptions& options) {
    if (!can_be_shown(options)) return kUsage;
    std::vector<std::string> files = options.files;
    if (files.empty()) files.push_back(chosen_file({}));
    std::vector<Replayed> all;
    all.reserve(files.size());
    for (const std::string& file : files)
        all.push_back(replayed(file, options));
    if (options.json) {
        Json list = Json::array();
        for (const Replayed& one : all)
            list.push_back(one_json(one, options));
        print_json({{"replays", std::move(list)}});
    } else if (all.size() == 1) {
        print_one(all.front(), options);
    } else {
        print_table(all, options);
    }
    const bool fits =
        std::ranges::all_of(all, [](const Replayed& one) { return one.result.fits(); });
    return fits ? kFine : kFindings;
}

} // namespace cachealloc::tools
