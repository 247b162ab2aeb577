// Small helpers of the options parser: text and tokens that need no heap. Internal to options*.cpp.
//
// Invariant: nothing here allocates, throws or depends on the locale; every buffer has a fixed
// size and is cut, visibly, rather than overrun. All functions are linear in their input.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

namespace cachealloc::options_detail {

// Text of at most N bytes, kept in place; what no longer fits is cut and replaced by "...".
template <std::size_t N>
class FixedText {
  public:
    void add(std::string_view text) noexcept {
        const std::size_t fits = std::min(text.size(), N - size_);
        std::copy_n(text.data(), fits, bytes_.data() + size_);
        size_ += fits;
        if (fits < text.size()) std::fill_n(bytes_.data() + N - 3, 3, '.');
    }

    void add(std::uint64_t number) noexcept {
        std::array<char, std::numeric_limits<std::uint64_t>::digits10 + 1> digits;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
        add(std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data())));
    }

    // Adds what the user wrote, in quotes. A log line must stay one line that harms no terminal.
    void add_quoted(std::string_view text) noexcept {
        add("\"");
        for (const char c : text) {
            const bool printable = c >= ' ' && c <= '~';
            add(printable ? std::string_view(&c, 1) : std::string_view("?"));
        }
        add("\"");
    }

    [[nodiscard]] std::string_view view() const noexcept { return {bytes_.data(), size_}; }

  private:
    static_assert(N > 3);
    std::array<char, N> bytes_;
    std::size_t size_ = 0;
};

// Whitespace as in the C locale, whatever the process's locale is.
constexpr bool is_space(char c) noexcept {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// A key or a value without its whitespace. No valid one is longer than the buffer except a list,
// which is parsed from the text itself; a token that was cut therefore equals nothing valid.
class Token {
  public:
    static constexpr std::size_t kRoom = 64;

    explicit Token(std::string_view raw) noexcept {
        for (const char c : raw) {
            if (is_space(c)) continue;
            cut_ = cut_ || size_ == kRoom;
            if (cut_) break;
            bytes_[size_++] = c;
        }
    }

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    // Whether the token is exactly `word`.
    [[nodiscard]] bool is(std::string_view word) const noexcept { return !cut_ && head() == word; }
    // The whole token, or its first kRoom bytes if it was cut.
    [[nodiscard]] std::string_view head() const noexcept { return {bytes_.data(), size_}; }
    // What to print behind the head.
    [[nodiscard]] std::string_view ellipsis() const noexcept { return cut_ ? "..." : ""; }

    // The token as a decimal number; saturated where it does not fit, so that a range check sees
    // it. False when it is no number.
    [[nodiscard]] bool number(std::uint64_t& value) const noexcept {
        const char* const end = bytes_.data() + size_;
        const auto result = std::from_chars(bytes_.data(), end, value);
        if (cut_ || size_ == 0 || result.ptr != end) return false;
        if (result.ec == std::errc::result_out_of_range) {
            value = std::numeric_limits<std::uint64_t>::max();
            return true;
        }
        return result.ec == std::errc{};
    }

    // The token as a decimal fraction in billionths, rounded down and saturated: digits with at
    // most one point, and an exponent. By integers alone: the program may have made floating-point
    // exceptions fatal. False when it is no such number.
    [[nodiscard]] bool billionths(std::uint64_t& value) const noexcept {
        constexpr std::uint64_t kSaturated = std::numeric_limits<std::uint64_t>::max() / 16;
        std::uint64_t digits = 0;
        int scale = 9; // the power of ten that turns `digits` into billionths
        bool point = false;
        bool any = false;
        std::size_t at = 0;
        for (; at < size_ && (bytes_[at] == '.' ? !point : is_digit(bytes_[at])); ++at) {
            if (bytes_[at] == '.') {
                point = true;
                continue;
            }
            any = true;
            if (digits < kSaturated) {
                digits = digits * 10 + static_cast<std::uint64_t>(bytes_[at] - '0');
                scale -= point ? 1 : 0;
            } else if (!point) {
                ++scale;
            }
        }
        if (cut_ || !any) return false;
        if (at < size_) {
            if (bytes_[at] != 'e' && bytes_[at] != 'E') return false;
            const bool plus = ++at < size_ && bytes_[at] == '+';
            at += plus ? 1 : 0;
            if (at == size_ || (plus && !is_digit(bytes_[at]))) return false;
            int exponent = 0;
            const char* const end = bytes_.data() + size_;
            const auto result = std::from_chars(bytes_.data() + at, end, exponent);
            if (result.ptr != end || result.ec != std::errc{}) return false;
            scale += std::clamp(exponent, -1000, 1000);
        }
        for (; scale < 0 && digits != 0; ++scale)
            digits /= 10;
        for (; scale > 0 && digits != 0 && digits < kSaturated; --scale)
            digits *= 10;
        value = digits;
        return true;
    }

  private:
    static constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

    std::array<char, kRoom> bytes_;
    std::size_t size_ = 0;
    bool cut_ = false;
};

} // namespace cachealloc::options_detail
