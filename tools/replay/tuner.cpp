#include "tools/replay/tuner.h"

#include <algorithm>
#include <map>
#include <span>

namespace cachealloc::tools {

namespace {

/// An option that is searched, and the values that are tried beside its default.
struct Knob {
    const char* name;
    std::span<const char* const> values;
};
constexpr const char* kSlackMiB[] = {"0", "16", "256"};
constexpr const char* kSlackPercent[] = {"0", "1", "2", "3", "5", "8", "20"};
constexpr const char* kCacheMiB[] = {"0", "16", "64", "256"};
constexpr const char* kDivisions[] = {"2", "4", "8", "16", "32"};
constexpr const char* kSegmentMiB[] = {"12", "16", "32", "64", "128", "256"};
constexpr const char* kSplitMiB[] = {"20", "32", "64", "128", "256", "512"};
constexpr const char* kRoundingMiB[] = {"64", "256"};
constexpr Knob kKnobs[] = {
    {"large_segment_size_mb", kSegmentMiB},
    {"slack_percent", kSlackPercent},
    {"slack_mb", kSlackMiB},
    {"roundup_power2_divisions", kDivisions},
    {"max_split_size_mb", kSplitMiB},
    {"max_non_split_rounding_mb", kRoundingMiB},
    {"cache_mb", kCacheMiB},
};
constexpr const char* kExpandable = "expandable_segments";
constexpr unsigned kRounds = 3;
constexpr std::uint64_t kWorthwhile = 1000; ///< a change of one part in so many

using Choice = std::map<std::string, std::string>; ///< values by option

std::string conf_of(const std::string& kept, const Choice& choice) {
    std::string conf = kept;
    for (const auto& [name, value] : choice)
        conf.append(conf.empty() ? "" : ",").append(name).append(":").append(value);
    return conf;
}

bool searched(std::string_view name) {
    return name == kExpandable ||
           std::ranges::any_of(kKnobs, [name](const Knob& knob) { return name == knob.name; });
}

/// One search, with expandable segments or without.
class Search {
  public:
    Search(const AllocationSequence& sequence, const TuneSettings& settings, Choice base)
        : sequence_(sequence), settings_(settings), choice_(std::move(base)) {
        best_ = replayed(choice_);
    }

    [[nodiscard]] const Tuned& best() const { return best_; }
    [[nodiscard]] unsigned replays() const { return replays_; }

    /// `show` gets the share that is done.
    void run(const std::function<void(double)>& show) {
        for (unsigned round = 0; round < kRounds; ++round) {
            bool better = false;
            for (std::size_t i = 0; i < std::size(kKnobs); ++i) {
                better = try_knob(kKnobs[i]) || better;
                show((round + static_cast<double>(i + 1) / std::size(kKnobs)) / (kRounds + 1));
            }
            if (!better) break;
        }
        drop_useless();
        show(1);
    }

  private:
    /// Whether `a` is better than `b` by enough to say so in an option.
    static bool worthwhile(const Tuned& a, const Tuned& b) {
        if (a.result.fits() != b.result.fits()) return a.result.fits();
        if (a.within != b.within) return a.within;
        if (!a.within && a.result.steady.changes() != b.result.steady.changes())
            return a.result.steady.changes() < b.result.steady.changes();
        return a.result.peak_reserved + b.result.peak_reserved / kWorthwhile <
               b.result.peak_reserved;
    }

    Tuned replayed(const Choice& choice) {
        Tuned tuned;
        tuned.conf = conf_of(settings_.kept, choice);
        ParseReport ignored;
        const Options options = parse_options(tuned.conf, ignored);
        tuned.result =
            replay_pool(sequence_, {options, SimulatedSource::kNoLimit, settings_.steps, false});
        tuned.within = tuned.result.fits() &&
                       tuned.result.per_step(tuned.result.steady.changes()) <= settings_.most_calls;
        ++replays_;
        return tuned;
    }

    /// Values that the table of options does not allow, alone or beside the others, are left out.
    [[nodiscard]] bool allowed(const Choice& choice) const {
        ParseReport report;
        static_cast<void>(parse_options(conf_of(settings_.kept, choice), report));
        return report.mistakes() == 0;
    }

    bool try_knob(const Knob& knob) {
        bool better = false;
        Choice kept = choice_;
        for (const char* const value : knob.values) {
            Choice other = kept;
            other[knob.name] = value;
            if (other == choice_ || !allowed(other)) continue;
            Tuned tuned = replayed(other);
            if (!worthwhile(tuned, best_)) continue;
            best_ = std::move(tuned);
            choice_ = std::move(other);
            better = true;
        }
        return better;
    }

    void drop_useless() {
        for (const Knob& knob : kKnobs) {
            if (!choice_.contains(knob.name)) continue;
            Choice other = choice_;
            other.erase(knob.name);
            if (!allowed(other)) continue;
            Tuned tuned = replayed(other);
            if (worthwhile(best_, tuned)) continue;
            best_ = std::move(tuned);
            choice_ = std::move(other);
        }
    }

    const AllocationSequence& sequence_;
    const TuneSettings& settings_;
    Choice choice_;
    Tuned best_;
    unsigned replays_ = 0;
};

} // namespace

const Tuned& TuneOutcome::best() const {
    if (tuned.result.fits() != expandable_tuned.result.fits())
        return tuned.result.fits() ? tuned : expandable_tuned;
    if (tuned.within != expandable_tuned.within) return tuned.within ? tuned : expandable_tuned;
    return expandable_tuned.result.peak_reserved < tuned.result.peak_reserved ? expandable_tuned
                                                                              : tuned;
}

TuneOutcome tune(const AllocationSequence& sequence, const TuneSettings& settings) {
    const auto show = [&](double share) {
        if (settings.progress) settings.progress(share);
    };
    TuneOutcome outcome;
    Search classic(sequence, settings, {});
    outcome.standard = classic.best();
    classic.run([&](double share) { show(share / 2); });
    outcome.tuned = classic.best();
    Search expandable(sequence, settings, {{kExpandable, "True"}});
    outcome.expandable = expandable.best();
    expandable.run([&](double share) { show(0.5 + share / 2); });
    outcome.expandable_tuned = expandable.best();
    outcome.replays = classic.replays() + expandable.replays();
    return outcome;
}

std::string options_to_keep(std::string_view conf) {
    ParseReport ignored;
    const std::string full = format_options(parse_options(conf, ignored));
    std::string standard = ",";
    standard.append(format_options(Options{})).append(",");
    std::string kept;
    std::size_t begin = 0;
    int depth = 0;
    for (std::size_t i = 0; i <= full.size(); ++i) {
        if (i < full.size()) {
            depth += full[i] == '[' ? 1 : (full[i] == ']' ? -1 : 0);
            if (full[i] != ',' || depth != 0) continue;
        }
        const std::string item = full.substr(begin, i - begin);
        begin = i + 1;
        if (searched(item.substr(0, item.find(':'))) ||
            standard.find(std::string(",").append(item).append(",")) != std::string::npos)
            continue;
        if (!kept.empty()) kept += ',';
        kept += item;
    }
    return kept;
}

} // namespace cachealloc::tools
