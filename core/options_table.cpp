#include "core/options_table.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

namespace cachealloc {
namespace options_detail {
namespace {

constexpr std::uint64_t kMaxMiB = 1048576; // 1 TiB: beyond any device, and no product overflows
constexpr std::uint64_t kMaxRingMiB = 65536;
constexpr std::uint64_t kMaxStackDepth = 256;
constexpr std::string_view kOffMeaning =
    "Pass every call on and do nothing else. It must be the whole text.";

template <auto Member>
void store_member(Options& options, std::uint64_t value) noexcept {
    options.*Member = static_cast<std::remove_cvref_t<decltype(options.*Member)>>(value);
}

template <auto Member>
std::uint64_t load_member(const Options& options) noexcept {
    return static_cast<std::uint64_t>(options.*Member);
}

template <auto Member>
constexpr Row choice(std::string_view name, std::array<std::string_view, 4> words,
                     std::string_view meaning) {
    return {name,
            OptionType::choice,
            words,
            0,
            0,
            false,
            meaning,
            store_member<Member>,
            load_member<Member>};
}

template <auto Member>
constexpr Row integer(std::string_view name, std::uint64_t min, std::uint64_t max,
                      std::string_view meaning, bool may_be_unlimited = false) {
    return {name,
            OptionType::integer,
            {},
            min,
            max,
            may_be_unlimited,
            meaning,
            store_member<Member>,
            load_member<Member>};
}

template <auto Member>
constexpr Row boolean(std::string_view name, std::string_view meaning) {
    return {name,
            OptionType::boolean,
            {},
            0,
            0,
            false,
            meaning,
            store_member<Member>,
            load_member<Member>};
}

template <auto Member>
void store_fraction(Options& options, std::uint64_t value) noexcept {
    (options.*Member).billionths = static_cast<std::uint32_t>(value);
}

template <auto Member>
std::uint64_t load_fraction(const Options& options) noexcept {
    return (options.*Member).billionths;
}

// From 0 to `max` billionths.
template <auto Member>
constexpr Row fraction(std::string_view name, std::uint64_t max, std::string_view meaning) {
    return {name,
            OptionType::fraction,
            {},
            0,
            max,
            false,
            meaning,
            store_fraction<Member>,
            load_fraction<Member>};
}

constexpr Row at_least_large_segment(Row row, bool by_default) {
    row.at_least_large_segment = true;
    row.large_segment_by_default = by_default;
    return row;
}

constexpr std::string_view kPinned = "it is about pinned host memory, which stays the driver's";
constexpr std::string_view kReserve =
    "a pool reserves addresses as it needs them; there is no fixed reserve to run out of";

constexpr Foreign kForeign[] = {
    {"backend", "the program chooses its own allocator; its calls to CUDA are what is served here"},
    {"expandable_segments_reserve", kReserve},
    {"expandable_segments_reserve_by_class", kReserve},
    {"graph_capture_record_stream_reuse",
     "what is allocated or freed beside a capture is not pooled until the capture has ended"},
    {"release_lock_on_hipmalloc", "there is no HIP here"},
    {"pinned_use_cuda_host_register", kPinned},
    {"pinned_use_hip_host_register", kPinned},
    {"pinned_num_register_threads", kPinned},
    {"pinned_use_background_threads", kPinned},
    {"pinned_reserve_segment_size_mb", kPinned},
    {"pinned_free_catch_all", kPinned},
    {"pinned_max_cached_size_mb", kPinned},
    {"pinned_max_round_threshold_mb", kPinned},
};

constexpr Row kTable[] = {
    choice<&Options::free_mode>(
        "free", {"auto", "sync", "async"},
        "Whether freeing waits for the work of its context, as it natively does. auto: later GPU "
        "work does, the host only where it may look at results that nothing else waits for; sync: "
        "the host always; async: nobody, the memory is only kept from reuse until that work is "
        "done."),
    choice<&Options::async_mode>(
        "async", {"pool", "driver"},
        "Who serves cudaMallocAsync on a device's default memory pool: the same pool as cudaMalloc "
        "(pool), or the driver as without the shim (driver)."),
    choice<&Options::order>(
        "order", {"auto", "fenced", "finished", "wait"},
        "The level of caution to start at: order reuse by fences, reuse only what is finished, or "
        "wait at each free; auto starts as low as is safe."),
    integer<&Options::slack_mb>(
        "slack_mb", 0, kMaxMiB,
        "MiB the pool may hold beyond its live peak before it prefers to reuse memory that is "
        "still waiting; the larger of this and slack_percent counts."),
    integer<&Options::slack_percent>("slack_percent", 0, 100,
                                     "The same as slack_mb, in percent of the live peak."),
    integer<&Options::cache_mb>("cache_mb", 0, kMaxMiB,
                                "MiB of free blocks the shared exact-size caches may hold; one "
                                "block a size and thread comes on top."),
    {"roundup_power2_divisions",
     OptionType::divisions,
     {},
     0,
     kMaxDivisions,
     false,
     "Round sizes up to this many steps per power of two; a list names the intervals by their "
     "size in MiB: [256:1,512:2,>:4].",
     nullptr,
     nullptr},
    integer<&Options::large_segment_size_mb>(
        kLargeSegment, 11, kMaxMiB, "MiB of a segment that requests from 1 to 10 MiB share."),
    at_least_large_segment(
        integer<&Options::max_split_size_mb>(
            "max_split_size_mb", 0, kMaxMiB,
            "Segments made for requests of so many MiB or more are never split, and serve no "
            "smaller ones; unlimited lets all be split. Memory of expandable_segments may always "
            "be split.",
            true),
        false),
    at_least_large_segment(
        integer<&Options::max_non_split_rounding_mb>(
            "max_non_split_rounding_mb", 0, kMaxMiB,
            "A segment that is never split may be this many MiB larger than what it serves, "
            "exclusive; the default follows large_segment_size_mb."),
        true),
    fraction<&Options::per_process_memory_fraction>(
        "per_process_memory_fraction", Fraction::kOne,
        "The share of a device's memory that the process may hold there, with what the driver and "
        "libraries hold as far as known; beyond it memory is given back, then refused."),
    fraction<&Options::garbage_collection_threshold>(
        "garbage_collection_threshold", Fraction::kOne - 1,
        "Above this share of what per_process_memory_fraction (less than 1) allows, the large "
        "segments unused for longest are given back before growth; 0 switches it off."),
    boolean<&Options::throw_on_cudamalloc_oom>(
        "throw_on_cudamalloc_oom",
        "Growth beyond per_process_memory_fraction (less than 1) is refused at once, and nothing "
        "is given back to make room for it."),
    boolean<&Options::release_lock_on_cudamalloc>(
        "release_lock_on_cudamalloc",
        "Accepted and without effect: while one thread is in the driver, others allocate and "
        "free; only those that need to grow too wait for it."),
    boolean<&Options::expandable_segments>(
        "expandable_segments",
        "Memory grows at the end of one range of addresses per pool, and free pieces of it are "
        "mapped together where a request needs more than any of them holds; such memory cannot be "
        "exported by IPC."),
    boolean<&Options::pool>("pool", "False sends every call to the driver and only counts it."),
    choice<&Options::record>(
        "record", {"off", "on"},
        "Whether allocations and frees are recorded in a file; it is kept when the process does "
        "not leave through exit() or ran out of memory."),
    choice<&Options::stacks>("stacks", {"alloc", "all", "off"},
                             "Which calls are recorded with their call stacks: those that "
                             "allocate (alloc), those that free as well (all), or none (off)."),
    choice<&Options::unwinder>(
        "unwinder", {"auto", "libunwind", "gcc"},
        "What walks the call stacks: libunwind, libgcc (gcc: ten times slower, needs nothing "
        "else), or what is fastest wherever it is exact (auto)."),
    integer<&Options::ring_mb>("ring_mb", 1, kMaxRingMiB,
                               "MiB of history that the recording keeps, 16384 events a MiB; what "
                               "is live is kept beyond it."),
    integer<&Options::stack_depth>("stack_depth", 1, kMaxStackDepth,
                                   "Frames kept of a call stack, the innermost ones."),
    boolean<&Options::stats>("stats", "Print statistics when the process exits."),
    boolean<&Options::strict>(
        "strict", "End the process with status 2 when an option here cannot be understood."),
    choice<&Options::log>(
        "log", {"quiet", "normal", "verbose"},
        "What is written to standard error: errors only, warnings too, or also what "
        "explains."),
};
static_assert(std::size(kTable) <= 64, "the parser keeps one bit a row");

// Levenshtein distance; `a` is a token's head, `b` a row's name. O(length * length), no heap.
std::size_t edit_distance(std::string_view a, std::string_view b) noexcept {
    std::array<std::size_t, Token::kRoom + 1> line; // distances of a's prefixes to the prefix of b
    for (std::size_t i = 0; i <= a.size(); ++i)
        line[i] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
        std::size_t diagonal = std::exchange(line[0], j);
        for (std::size_t i = 1; i <= a.size(); ++i) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U);
            diagonal = line[i];
            line[i] = std::min({replaced, line[i] + 1, line[i - 1] + 1});
        }
    }
    return line[a.size()];
}

// As a user would write it, without the zeros at its end.
void add_fraction(ValueText& text, std::uint64_t billionths) noexcept {
    text.add(billionths / Fraction::kOne);
    std::uint64_t rest = billionths % Fraction::kOne;
    if (rest != 0) text.add(".");
    for (std::uint64_t digit = Fraction::kOne / 10; rest != 0; digit /= 10) {
        text.add(rest / digit);
        rest %= digit;
    }
}

void add_divisions(ValueText& text, const RoundupDivisions& divisions) noexcept {
    if (std::ranges::count(divisions, divisions[0]) == std::ssize(divisions)) {
        text.add(std::uint64_t{divisions[0]});
        return;
    }
    for (std::size_t i = 0; i < divisions.size(); ++i) {
        text.add(i == 0 ? "[" : ",");
        text.add(std::uint64_t{1} << i);
        text.add(":");
        text.add(std::uint64_t{divisions[i]});
    }
    text.add("]");
}

} // namespace

std::span<const Row> rows() noexcept {
    return kTable;
}

const Row* find_row(const Token& key) noexcept {
    for (const Row& row : kTable) {
        if (key.is(row.name)) return &row;
    }
    return nullptr;
}

const Foreign* find_foreign(const Token& key) noexcept {
    for (const Foreign& foreign : kForeign) {
        if (key.is(foreign.name)) return &foreign;
    }
    return nullptr;
}

const Row& nearest_row(const Token& key) noexcept {
    return *std::min_element(std::begin(kTable), std::end(kTable), [&](const Row& a, const Row& b) {
        return edit_distance(key.head(), a.name) < edit_distance(key.head(), b.name);
    });
}

void add_allowed(ValueText& text, const Row& row) noexcept {
    switch (row.type) {
    case OptionType::choice:
        for (std::size_t i = 0; i < row.words.size() && !row.words[i].empty(); ++i) {
            if (i != 0) text.add(", ");
            text.add(row.words[i]);
        }
        return;
    case OptionType::integer:
        if (row.at_least_large_segment) {
            text.add(kLargeSegment);
        } else {
            text.add(row.min);
        }
        text.add(" to ");
        text.add(row.max);
        if (row.may_be_unlimited) text.add(", or unlimited");
        return;
    case OptionType::boolean:
        text.add("True, False");
        return;
    case OptionType::fraction:
        text.add(row.max == Fraction::kOne ? "0 to 1" : "0, or less than 1");
        return;
    case OptionType::divisions:
        text.add("0 or a power of two up to ");
        text.add(kMaxDivisions);
        text.add(", or a list of MiB:divisions with powers of two up to ");
        text.add(kMaxIntervalMiB);
        text.add(" or a last > as MiB");
        return;
    }
}

void add_value(ValueText& text, const Row& row, const Options& options) noexcept {
    if (row.type == OptionType::divisions) {
        add_divisions(text, options.roundup_power2_divisions);
        return;
    }
    const std::uint64_t value = row.load(options);
    if (row.type == OptionType::choice) {
        text.add(row.words[value]);
    } else if (row.type == OptionType::boolean) {
        text.add(value != 0 ? "True" : "False");
    } else if (row.type == OptionType::fraction) {
        add_fraction(text, value);
    } else if (row.may_be_unlimited && value == Options::kUnlimited) {
        text.add(kUnlimitedWord);
    } else {
        text.add(value);
    }
}

void set_default(const Row& row, Options& options) noexcept {
    constexpr Options kDefaults;
    if (row.type == OptionType::divisions) {
        options.roundup_power2_divisions = kDefaults.roundup_power2_divisions;
    } else if (row.large_segment_by_default) {
        row.store(options, options.large_segment_size_mb);
    } else {
        row.store(options, row.load(kDefaults));
    }
}

} // namespace options_detail

using namespace options_detail;

std::size_t option_count() noexcept {
    return rows().size();
}

OptionInfo option_info(std::size_t index) {
    const Row& row = rows()[index];
    ValueText allowed;
    add_allowed(allowed, row);
    ValueText standard;
    add_value(standard, row, Options{});
    return {row.name, row.type, row.meaning, std::string(allowed.view()),
            std::string(standard.view())};
}

std::string describe_options() {
    std::string text = "| option | default | allowed | meaning |\n|---|---|---|---|\n";
    const auto add_line = [&text](std::string_view name, std::string_view standard,
                                  std::string_view allowed, std::string_view meaning) {
        for (const std::string_view cell : {name, standard, allowed, meaning}) {
            text.append("| ").append(cell).append(" ");
        }
        text.append("|\n");
    };
    add_line(kOffWord, "", "", kOffMeaning);
    for (std::size_t i = 0; i < option_count(); ++i) {
        const OptionInfo info = option_info(i);
        add_line(info.name, info.default_text, info.allowed, info.meaning);
    }
    return text;
}

std::string format_options(const Options& options) {
    if (options.off) return std::string(kOffWord);
    std::string text;
    for (const Row& row : rows()) {
        ValueText value;
        add_value(value, row, options);
        if (!text.empty()) text += ',';
        text.append(row.name).append(":").append(value.view());
    }
    return text;
}

} // namespace cachealloc
