// The table of options as the parser sees it. Internal to options.cpp and options_table.cpp.
//
// Invariant: a row's name is unique, its default (the member of a fresh `Options`) lies in its
// range, and the words of a choice stand in the order of the values of its member's type.
// Everything here is constant after start-up and may be used by any thread; nothing allocates or
// throws.
#pragma once

#include "core/options.h"
#include "core/options_text.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cachealloc::options_detail {

inline constexpr std::uint64_t kMaxDivisions = 64;
inline constexpr std::uint64_t kMaxIntervalMiB = 65536;
inline constexpr std::string_view kUnlimitedWord = "unlimited";
inline constexpr std::string_view kOffWord = "off";

// One option. Integers, booleans, fractions and choices are read and written as numbers, a fraction
// in billionths, a choice as its place in `words`, which therefore follow the values of the
// member's type. The one list, of divisions, goes by its own functions and leaves these null.
struct Row {
    std::string_view name;
    OptionType type;
    std::array<std::string_view, 4> words;
    std::uint64_t min;
    std::uint64_t max;
    bool may_be_unlimited;
    std::string_view meaning;
    void (*store)(Options&, std::uint64_t) noexcept;
    std::uint64_t (*load)(const Options&) noexcept;
    // No less than large_segment_size_mb.
    bool at_least_large_segment = false;
    // That is its default, too.
    bool large_segment_by_default = false;
};

inline constexpr std::string_view kLargeSegment = "large_segment_size_mb";

// An option of PyTorch's allocator that a preload has no use for.
struct Foreign {
    std::string_view name;
    std::string_view why;
};
// The one of that name, or null.
[[nodiscard]] const Foreign* find_foreign(const Token& key) noexcept;

// All rows, in the order they are shown to the user.
[[nodiscard]] std::span<const Row> rows() noexcept;

// The row of that name, or null. O(rows).
[[nodiscard]] const Row* find_row(const Token& key) noexcept;

// The row whose name takes the fewest edits to reach from `key`; the first of several.
// O(rows * length^2), for messages only.
[[nodiscard]] const Row& nearest_row(const Token& key) noexcept;

using ValueText = FixedText<256>; // the longest is a list of 16 divisions, about 160 bytes

// Adds the values the row allows, in words.
void add_allowed(ValueText& text, const Row& row) noexcept;

// Adds the row's value in `options`, as a user would write it.
void add_value(ValueText& text, const Row& row, const Options& options) noexcept;

// Gives the row's member in `options` its default, which may follow another member.
void set_default(const Row& row, Options& options) noexcept;

} // namespace cachealloc::options_detail
