#include "tools/commands/report.h"

#include "tools/commands/memory_table.h"
#include "tools/commands/text.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

/// How long the lists are: one device that did not run out of memory leaves more room.
struct Lengths {
    std::size_t holders;
    std::size_t pins;
    std::size_t lacks;
    std::size_t whole_devices; ///< those with the largest peaks; others get one line
};
constexpr Lengths kRoomy{5, 2, 6, 1};
constexpr Lengths kCrowded{3, 1, 3, 2};
constexpr Lengths kOutOfMemory{3, 1, 3, 1};
constexpr std::size_t kClasses = 4;
constexpr std::size_t kAdvice = 5;

/// Writes the parts of the screen, one after the other.
class Screen {
  public:
    Screen(const Recording& recording, const Summary& summary, StackNames& names, std::size_t top,
           bool by_class)
        : trace_(recording.trace), summary_(summary), names_(names), by_class_(by_class),
          lengths_(summary.out_of_memory ? kOutOfMemory
                                         : (summary.devices.size() > 1 ? kCrowded : kRoomy)) {
        if (top != 0) lengths_.holders = top;
    }

    std::string text() {
        head();
        if (summary_.out_of_memory) failure(*summary_.out_of_memory);
        devices();
        churn();
        savings();
        advice();
        lacks();
        return std::move(text_);
    }

  private:
    template <class... Values>
    void line(fmt::format_string<Values...> format, Values&&... values) {
        text_ += fmt::format(format, std::forward<Values>(values)...) + "\n";
    }
    [[nodiscard]] std::string after(std::uint64_t ticks) const {
        return duration_text(std::max(trace_.clock.since_start(ticks), 0.0));
    }

    void head() {
        const Settings& settings = trace_.settings;
        const std::string_view exe = base_name(settings["exe"]);
        line("{}: process {}, started {}, {}", exe.empty() ? "A program" : exe, trace_.header().pid,
             time_text(trace_.header().start.realtime_ns), ending());
        const std::string_view command = settings["command"];
        if (!command.empty()) line("  {}", cut(command, kColumns - 2));
        std::string how;
        for (const auto& [name, title] :
             {std::pair{"version", "cachealloc "}, std::pair{"conf", "CACHEALLOC_CONF="},
              std::pair{"driver", "CUDA "}, std::pair{"host", "on "}}) {
            if (!settings[name].empty())
                how += fmt::format("{}{}{}", how.empty() ? "" : ", ", title, settings[name]);
        }
        if (!how.empty()) line("  {}", cut(how, kColumns - 2));
        line("  {}: {} events of {}", trace_.file.path(), count_text(trace_.events.counts().valid),
             count_text(trace_.events.counts().valid + trace_.header().counters.overwritten));
    }

    [[nodiscard]] std::string ending() const {
        const std::string lasted = duration_text(summary_.seconds * 1e9);
        switch (summary_.end) {
        case RunEnd::running:
            return "running for " + lasted;
        case RunEnd::clean:
            return fmt::format("ended after {}", lasted);
        case RunEnd::stopped:
            return fmt::format("recorded for {}, not to its end", lasted);
        case RunEnd::killed:
            break;
        }
        return fmt::format("DIED after {} (killed, crashed, or left without exit())", lasted);
    }

    void failure(const OutOfMemory& is) {
        line("");
        line("OUT OF MEMORY {}after {}: {} asked for on device {}; the driver had {} free",
             is.count == 1 ? "" : fmt::format("({} times, the last) ", count_text(is.count)),
             after(is.event.time), bytes_text(is.event.size), is.event.device,
             bytes_text(is.event.stream));
        line("  by {}", names_.brief(is.event.stack, kColumns - 5));
        line("  live then      {:>9}; the largest free piece of the pool was {}",
             bytes_text(is.bytes.live), bytes_text(is.fragmentation.largest_free));
        line("  reserved then  {:>9}", bytes_text(is.bytes.reserved));
        split(is.fragmentation);
        text_ += holders_text(is.holders, is.bytes.live, lengths_.holders, names_);
        pins(is.fragmentation);
    }

    void devices() {
        std::vector<const DeviceSummary*> order;
        for (const DeviceSummary& device : summary_.devices)
            order.push_back(&device);
        std::ranges::stable_sort(order, std::greater<>(), [](const DeviceSummary* device) {
            return std::max(device->peaks.live.bytes, device->peaks.reserved.bytes);
        });
        // The device that ran out of memory comes first.
        std::ranges::stable_sort(order, std::greater<>(), [&](const DeviceSummary* device) {
            return summary_.out_of_memory &&
                   summary_.out_of_memory->event.device == device->ordinal;
        });
        for (std::size_t i = 0; i < order.size(); ++i) {
            if (i <= lengths_.whole_devices) line("");
            i < lengths_.whole_devices ? device(*order[i]) : device_line(*order[i]);
        }
        if (order.empty()) line("\nNo memory was allocated.");
    }

    static std::string title(const DeviceSummary& is) {
        std::string text = fmt::format("Device {}", is.ordinal);
        if (!is.name.empty()) text += ", " + is.name;
        if (is.total != 0) text += ", " + bytes_text(is.total);
        return text;
    }

    void device_line(const DeviceSummary& is) {
        line("{}: peak live {} after {}, peak reserved {}; {} live at the end", title(is),
             bytes_text(is.peaks.live.bytes), after(is.peaks.live.time),
             bytes_text(is.peaks.reserved.bytes), bytes_text(is.at_end.live));
    }

    void device(const DeviceSummary& is) {
        const bool now = summary_.end == RunEnd::running;
        line("{}", title(is));
        line("  peak live      {:>9} after {} (reserved then {})", bytes_text(is.peaks.live.bytes),
             after(is.peaks.live.time), bytes_text(is.at_live_peak.reserved));
        const Device* const counted = trace_.devices.find(is.ordinal);
        if (is.peaks.live_before_window && counted != nullptr)
            line("                 {:>9} after {}, before the oldest event: who held it is unknown",
                 bytes_text(counted->live_peak), after(counted->live_peak_time));
        if (is.peaks.reserved.bytes != 0)
            line("  peak reserved  {:>9} after {} (live in it {})",
                 bytes_text(is.peaks.reserved.bytes), after(is.peaks.reserved.time),
                 bytes_text(is.at_reserved_peak.pooled));
        if (is.peaks.reserved_before_window && counted != nullptr)
            line("                 {:>9} after {}, before the oldest event",
                 bytes_text(counted->reserved_peak), after(counted->reserved_peak_time));
        split(is.fragmentation);
        line("  {}     {:>9} live, {} reserved", now ? "now       " : "at the end",
             bytes_text(is.at_end.live), bytes_text(is.at_end.reserved));
        if (is.peaks.host.bytes != 0)
            line("  pinned on the host: peak {}, {} {}", bytes_text(is.peaks.host.bytes),
                 bytes_text(is.at_end.host), now ? "now" : "at the end");
        if (is.memory_stats) text_ += memory_table(*is.memory_stats, by_class_);
        // When memory ran out, the holders of that moment come first, and say it.
        if (!summary_.out_of_memory || summary_.out_of_memory->event.device != is.ordinal) {
            pins(is.fragmentation);
            if (!is.peak_holders.empty()) line("  Who held the memory at the peak of live:");
            text_ += holders_text(is.peak_holders, is.at_live_peak.live, lengths_.holders, names_);
        }
        if (is.end_holders.empty()) return;
        line("  Who holds memory {}:", now ? "now" : "at the end");
        text_ += holders_text(is.end_holders, is.at_end.live, lengths_.holders, names_);
    }

    void split(const Fragmentation& is) {
        if (is.reserved == 0) return;
        const std::uint64_t wasted = is.rounding + is.hard + is.soft + is.stream;
        if (wasted == 0) {
            line("  wasted of it     nothing");
        } else {
            line("  wasted of it   {:>9} ({}): {} between live blocks, {} in free segments,",
                 bytes_text(wasted), share_text(wasted, is.reserved), bytes_text(is.hard),
                 bytes_text(is.soft));
            line("                 {} freed but not finished, {} by rounding",
                 bytes_text(is.stream), bytes_text(is.rounding));
        }
        if (is.outside != 0)
            line("  {} of live blocks lie in segments that the recording does not know",
                 bytes_text(is.outside));
    }

    void pins(const Fragmentation& is) {
        for (std::size_t i = 0; i < std::min(is.pins.size(), lengths_.pins); ++i) {
            const Pin& pin = is.pins[i];
            const std::string age = pin.oldest.since == 0
                                        ? "older than the oldest event"
                                        : "allocated after " + after(pin.oldest.since);
            line("  pinned: a segment of {}, {} of it free, by {}, {}",
                 bytes_text(pin.segment.size), bytes_text(pin.free),
                 pin.blocks == 1 ? "one block of " + bytes_text(pin.oldest.size)
                                 : fmt::format("{} blocks, the oldest of {}", pin.blocks,
                                               bytes_text(pin.oldest.size)),
                 age);
            line("          {}", names_.brief(pin.oldest.stack, kColumns - 10));
        }
    }

    void churn() {
        const ChurnClass& all = summary_.churn_total;
        if (all.allocations + all.frees == 0) return;
        line("");
        line("Churn: {} allocations of {}, {} frees; a block lived {} on average",
             count_text(all.allocations), bytes_text(all.bytes), count_text(all.frees),
             all.lifetimes == 0 ? "an unknown time"
                                : duration_text(all.mean_lifetime() * trace_.clock.tick_ns()));
        std::vector<std::size_t> order(summary_.churn.size());
        for (std::size_t i = 0; i < order.size(); ++i)
            order[i] = i;
        std::ranges::stable_sort(order, std::greater<>(),
                                 [&](std::size_t i) { return summary_.churn[i].allocations; });
        for (std::size_t i = 0; i < kClasses; ++i) {
            const ChurnClass& one = summary_.churn[order[i]];
            if (one.allocations == 0) break;
            line("  {:>9} to {:>9}: {:>11} times ({}), {}, lived {}",
                 bytes_text(std::uint64_t{1} << order[i]),
                 bytes_text((std::uint64_t{2} << order[i]) - 1), count_text(one.allocations),
                 share_text(one.allocations, all.allocations), bytes_text(one.bytes),
                 one.lifetimes == 0 ? "an unknown time"
                                    : duration_text(one.mean_lifetime() * trace_.clock.tick_ns()));
        }
    }

    void savings() {
        const Savings& is = summary_.savings;
        if (is.requests == 0) return;
        line("");
        line("The pool spared {} of {} allocation calls, {} of {} free calls, {} waits for the GPU",
             count_text(is.alloc_calls), count_text(is.requests), count_text(is.free_calls),
             count_text(is.frees), count_text(is.waits));
        if (is.alloc_call_ns > 0)
            line("  about {} by what real calls took in this run: {} an allocation, {} a free",
                 duration_text(is.saved_ns), duration_text(is.alloc_call_ns),
                 is.free_call_ns > 0 ? duration_text(is.free_call_ns) : std::string("unknown"));
    }

    void advice() {
        if (summary_.advice.empty()) return;
        line("");
        line("Advice");
        for (std::size_t i = 0; i < std::min(summary_.advice.size(), kAdvice); ++i) {
            const Advice& one = summary_.advice[i];
            text_ += wrapped(one.option.empty() ? one.reason : one.option + ": " + one.reason, 2,
                             kColumns);
        }
    }

    void lacks() {
        if (summary_.lacks.empty()) return;
        line("");
        line("What this recording does not tell");
        for (std::size_t i = 0; i < std::min(summary_.lacks.size(), lengths_.lacks); ++i)
            text_ += wrapped(summary_.lacks[i], 2, kColumns);
        if (summary_.lacks.size() > lengths_.lacks)
            line("  {} things more: cachealloc check {}", summary_.lacks.size() - lengths_.lacks,
                 trace_.file.path());
    }

    const Trace& trace_;
    const Summary& summary_;
    StackNames& names_;
    const bool by_class_;
    Lengths lengths_;
    std::string text_;
};

} // namespace

std::string report_text(const Recording& recording, const Summary& summary, StackNames& names,
                        std::size_t top, bool by_class) {
    return Screen(recording, summary, names, top, by_class).text();
}

} // namespace cachealloc::tools
