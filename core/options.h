// The options a user may set, with their defaults, and the parser that fills them in.
//
// Invariant: whatever the text, `parse_options` returns a complete, valid set of options: each
// member holds either a value its row of the table allows or its default, and each thing in the
// text that was not taken at its word has one line in the report (or is counted as dropped).
//
// The options are described once: the members below carry type and default, the table in
// options.cpp adds name, range and meaning. Parser, `describe_options`, `format_options` and the
// command-line tool all read that table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cachealloc {

// Whether freeing memory waits for the work of its context, as the native call does. `automatic`
// (spelled `auto` by the user) waits where the program may lean on it.
enum class FreeMode : std::uint8_t { automatic, sync, async };

// Who serves stream-ordered calls on a device's default pool.
enum class AsyncMode : std::uint8_t { pool, driver };

// The level of caution a context starts at; it may only become more careful later.
// `automatic` (spelled `auto` by the user) starts at the least careful level that is safe.
enum class OrderStart : std::uint8_t { automatic, fenced, finished, wait };

// Which calls are recorded with their call stacks: those that allocate, those that free as well, or
// none.
enum class StackMode : std::uint8_t { alloc, all, off };

// What walks the stacks. `automatic` (spelled `auto` by the user) takes what is fastest wherever it
// is exact.
enum class UnwinderChoice : std::uint8_t { automatic, libunwind, gcc };

// How much is written to standard error: errors only, also what a user should know, or also what
// explains.
enum class LogDetail : std::uint8_t { quiet, normal, verbose };

// Divisions of each power-of-two interval that a request is rounded up to. Entry i serves sizes
// in [2^i MiB, 2^(i+1) MiB); entry 0 serves smaller sizes too, entry 15 all from 32 GiB up.
// 0 means plain rounding, else a power of two up to 64.
using RoundupDivisions = std::array<std::uint8_t, 16>;

// A share of a whole from 0 to 1, exact to a billionth.
struct Fraction {
    static constexpr std::uint32_t kOne = 1'000'000'000;
    std::uint32_t billionths = 0;

    // That share of `bytes`, rounded down; without overflow.
    [[nodiscard]] constexpr std::uint64_t of(std::uint64_t bytes) const noexcept {
        return bytes / kOne * billionths + bytes % kOne * billionths / kOne;
    }
    friend constexpr bool operator==(const Fraction&, const Fraction&) = default;
};

// The entry of `RoundupDivisions` that serves a request of `bytes` bytes. O(1).
[[nodiscard]] std::size_t roundup_interval(std::uint64_t bytes) noexcept;

// Plain values, freely copied. A default-constructed object holds the defaults.
struct Options {
    static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
    static constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

    // The whole text was `off`: do nothing but pass calls on. All else keeps its default.
    bool off = false;

    FreeMode free_mode = FreeMode::automatic;
    AsyncMode async_mode = AsyncMode::pool;
    OrderStart order = OrderStart::automatic;
    std::uint64_t slack_mb = 64;
    std::uint64_t slack_percent = 12;
    std::uint64_t cache_mb = 1024;
    std::uint64_t large_segment_size_mb = 20;
    std::uint64_t max_split_size_mb = kUnlimited;
    std::uint64_t max_non_split_rounding_mb = 20;
    Fraction per_process_memory_fraction{Fraction::kOne};
    Fraction garbage_collection_threshold{};
    bool throw_on_cudamalloc_oom = false;
    bool release_lock_on_cudamalloc = false;
    RoundupDivisions roundup_power2_divisions{};
    bool expandable_segments = false;
    bool pool = true;
    bool record = true;
    StackMode stacks = StackMode::alloc;
    UnwinderChoice unwinder = UnwinderChoice::automatic;
    std::uint64_t ring_mb = 64;
    std::uint64_t stack_depth = 64;
    bool stats = false;
    bool strict = false;
    LogDetail log = LogDetail::normal;

    // Memory the pool may hold beyond the live peak `live_peak_bytes` before it prefers reuse to
    // growth, in bytes: the larger of `slack_mb` and `slack_percent` of the peak.
    [[nodiscard]] std::uint64_t slack_bytes(std::uint64_t live_peak_bytes) const noexcept;
    // Byte budget of the exact-size caches.
    [[nodiscard]] std::uint64_t cache_bytes() const noexcept { return cache_mb * kMiB; }
    // Bytes of a segment that large requests share.
    [[nodiscard]] std::uint64_t large_segment_bytes() const noexcept {
        return large_segment_size_mb * kMiB;
    }
    // How much larger than the request a block that must not be split may be, in bytes.
    [[nodiscard]] std::uint64_t max_non_split_rounding_bytes() const noexcept {
        return max_non_split_rounding_mb * kMiB;
    }
    // Segments made for requests of so many bytes or more are never split; kUnlimited when every
    // one may be.
    [[nodiscard]] std::uint64_t max_split_bytes() const noexcept {
        return max_split_size_mb == kUnlimited ? kUnlimited : max_split_size_mb * kMiB;
    }

    // Bytes of history that the recording keeps.
    [[nodiscard]] std::uint64_t ring_bytes() const noexcept { return ring_mb * kMiB; }

    friend bool operator==(const Options&, const Options&) = default;
};

// What the parser has to say to the user: lines without prefix and newline, printable ASCII only.
// Owns its text in place (about 7 KiB), so that making a report can neither fail nor throw.
class ParseReport {
  public:
    static constexpr std::size_t kMaxMessages = 16;
    static constexpr std::size_t kMaxMessageBytes = 448;

    // Number of lines kept, at most kMaxMessages.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    // Line `index` (0 .. size()-1), in the order of the text; lives as long as the report.
    [[nodiscard]] std::string_view operator[](std::size_t index) const noexcept {
        return {lines_[index].text.data(), lines_[index].length};
    }
    // Lines that no longer fitted.
    [[nodiscard]] std::size_t dropped() const noexcept { return dropped_; }
    // Things in the text that could not be used (unknown key, bad value, ...), kept or dropped.
    // A duplicate key earns a line but is no mistake. With `strict` the caller ends the process
    // if this is not 0.
    [[nodiscard]] std::size_t mistakes() const noexcept { return mistakes_; }

    // Adds a line; one longer than kMaxMessageBytes is cut.
    void add(bool mistake, std::string_view line) noexcept;

  private:
    struct Line {
        std::array<char, kMaxMessageBytes> text;
        std::size_t length;
    };
    std::array<Line, kMaxMessages> lines_{};
    std::size_t size_ = 0;
    std::size_t dropped_ = 0;
    std::size_t mistakes_ = 0;
};

// Parses `text` (`key:value,key:value,key:[k:v,k:v]`; whitespace is ignored; or the one word
// `off`) into a full set of options. A key that comes twice: the last one counts. A value that
// cannot be used: the default is used. Empty text: the defaults; empty items (`a:1,,b:2`) are
// ignored. Parsing always goes on to the end. In a list the first entry also fills the intervals
// below it, and `>` those above the entry before it. The order of the items does not matter, though
// large_segment_size_mb limits others. Options of PyTorch's allocator that have no meaning below a
// program get a line that says why, and are no mistake. Adds its lines to `report`. No heap, no
// exceptions, no locale. O(length of text).
[[nodiscard]] Options parse_options(std::string_view text, ParseReport& report) noexcept;

enum class OptionType : std::uint8_t { choice, integer, boolean, fraction, divisions };

// One row of the table, for help texts and tools. `name` and `meaning` live for ever.
struct OptionInfo {
    std::string_view name;
    OptionType type;
    std::string_view meaning; // one line
    std::string allowed;      // the values allowed, in words
    std::string default_text; // as a user would write it
};

// Number of options, and row `index` (0 .. option_count()-1) of the table.
[[nodiscard]] std::size_t option_count() noexcept;
[[nodiscard]] OptionInfo option_info(std::size_t index);

// The table as Markdown, one row an option, for the README and the tool's help.
[[nodiscard]] std::string describe_options();

// `options` written out in full, such that parsing the result gives `options` again.
[[nodiscard]] std::string format_options(const Options& options);

} // namespace cachealloc
