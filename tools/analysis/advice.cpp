#include "tools/analysis/summary.h"

#include <algorithm>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

constexpr double kMuchFragmentation = 0.10; ///< of what was reserved
constexpr double kMuchRounding = 0.10;
constexpr std::uint64_t kWorthMention = std::uint64_t{64} << 20;
constexpr double kManyWaitsShare = 0.05; ///< of the run's time
constexpr std::uint64_t kFewRequests = 1000;
constexpr double kFewRequestsPerSecond = 10;

double mib(std::uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(1 << 20);
}

double share(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string setting(const char* text) {
    return fmt::format("CACHEALLOC_CONF={}", text);
}

void on_fragmentation(const Fragmentation& is, const char* when, const Settings& settings,
                      std::vector<Advice>& advice) {
    if (is.hard >= kWorthMention && share(is.hard, is.reserved) >= kMuchFragmentation) {
        // Blocks that may not be split keep large segments whole for large requests.
        const std::uint64_t pinned =
            is.pins.empty() ? 0 : std::max<std::uint64_t>(is.pins[0].oldest.bytes() >> 20, 20);
        const std::string option =
            is.pins.empty() || pinned >= 512
                ? setting("roundup_power2_divisions:8")
                : setting(fmt::format("max_split_size_mb:{}", std::max<std::uint64_t>(pinned, 128))
                              .c_str());
        advice.push_back(
            {option, fmt::format("{:.0f} MiB ({:.0f} %) of what was reserved {} lay "
                                 "free between live blocks",
                                 mib(is.hard), 100 * share(is.hard, is.reserved), when)});
    }
    if (is.soft >= kWorthMention && share(is.soft, is.reserved) >= 2 * kMuchFragmentation) {
        advice.push_back({setting("slack_mb:0,slack_percent:5"),
                          fmt::format("{:.0f} MiB of segments were wholly free {}: held for reuse "
                                      "that did not come",
                                      mib(is.soft), when)});
    }
    if (is.stream >= kWorthMention && share(is.stream, is.reserved) >= kMuchFragmentation) {
        advice.push_back({setting("slack_mb:0"),
                          fmt::format("{:.0f} MiB waited for the GPU {}: less slack reuses it "
                                      "sooner, behind a wait on the GPU",
                                      mib(is.stream), when)});
    }
    if (is.rounding >= kWorthMention && share(is.rounding, is.live) >= kMuchRounding &&
        settings["conf"].find("roundup_power2_divisions") != std::string_view::npos) {
        advice.push_back({setting("roundup_power2_divisions:0"),
                          fmt::format("rounding took {:.0f} MiB beyond what was asked for {}",
                                      mib(is.rounding), when)});
    }
}

void on_waits(const Summary& summary, const Statistics& statistics, std::vector<Advice>& advice) {
    const double waited = static_cast<double>(statistics["native_wait_ns"]) / 1e9;
    if (statistics["native_waits"] > 0 && waited >= kManyWaitsShare * summary.seconds &&
        summary.seconds > 0) {
        advice.push_back(
            {setting("free:async"),
             fmt::format("{} frees waited as natively, {:.2f} s of {:.2f} s; safe if the program "
                         "synchronises before it looks at results",
                         statistics["native_waits"], waited, summary.seconds)});
    }
    const double host = summary.savings.waited_ns / 1e9;
    if (host >= kManyWaitsShare * summary.seconds && host > 0) {
        advice.push_back({setting("slack_percent:50"),
                          fmt::format("the pool waited {:.2f} s for freed memory: more slack "
                                      "grows instead",
                                      host)});
    }
}

void on_recording(const History& history, std::vector<Advice>& advice) {
    const Trace& trace = history.trace();
    if (!history.whole() && trace.header().counters.overwritten != 0) {
        const std::uint64_t kept = trace.events.counts().valid;
        const std::uint64_t all = kept + trace.header().counters.overwritten;
        const std::uint64_t ring_mb = trace.file.section(trace::SectionType::events).bytes >> 20;
        const std::uint64_t needed =
            kept == 0 ? 65536
                      : static_cast<std::uint64_t>(
                            static_cast<double>(std::max<std::uint64_t>(ring_mb, 1)) *
                            share(all, kept) * 1.1) +
                            1;
        advice.push_back(
            {setting(fmt::format("ring_mb:{}", std::min<std::uint64_t>(needed, 65536)).c_str()),
             fmt::format("{} of {} events were overwritten; so large a ring keeps "
                         "them all",
                         trace.header().counters.overwritten, all)});
    }
    if (trace.stacks.used() == 0 && trace.events.counts().valid != 0) {
        advice.push_back({setting("stacks:alloc"),
                          "no stack was recorded: the report cannot say who holds memory"});
    }
}

void on_use(const Summary& summary, const Statistics& statistics, std::vector<Advice>& advice) {
    const std::uint64_t requests = statistics["allocations"] + statistics["passed_calls"];
    const bool few = requests < kFewRequests ||
                     static_cast<double>(requests) < kFewRequestsPerSecond * summary.seconds;
    if (statistics.has("allocations") && few && summary.end != RunEnd::running) {
        advice.push_back({"", fmt::format("the program asked for memory {} times in {:.3g} s: the "
                                          "pool saves it nothing, the recording still explains",
                                          requests, summary.seconds)});
    }
}

} // namespace

std::vector<Advice> advice_for(const Summary& summary, const History& history) {
    std::vector<Advice> advice;
    const Statistics& statistics = history.trace().statistics;
    if (summary.out_of_memory) {
        on_fragmentation(summary.out_of_memory->fragmentation, "when memory ran out",
                         history.trace().settings, advice);
    } else {
        for (const DeviceSummary& device : summary.devices)
            on_fragmentation(device.fragmentation, "at the peak", history.trace().settings, advice);
    }
    on_waits(summary, statistics, advice);
    on_recording(history, advice);
    on_use(summary, statistics, advice);
    const auto same = [](const Advice& a, const Advice& b) { return a.option == b.option; };
    advice.erase(std::unique(advice.begin(), advice.end(), same), advice.end());
    return advice;
}

} // namespace cachealloc::tools
