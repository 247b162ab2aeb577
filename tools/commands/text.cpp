#include "tools/commands/text.h"

#include <algorithm>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

struct Unit {
    double size;
    const char* name;
};

std::string scaled(double value, double unit, const char* name) {
    const double in_unit = value / unit;
    const int digits = in_unit < 9.995 ? 2 : (in_unit < 99.95 ? 1 : 0);
    return fmt::format("{:.{}f} {}", in_unit, digits, name);
}

} // namespace

std::string bytes_text(std::uint64_t bytes) {
    static constexpr Unit kUnits[] = {
        {0x1p50, "PiB"}, {0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}};
    const auto value = static_cast<double>(bytes);
    for (const Unit& unit : kUnits) {
        // From 0.9995 on, so that 1023.9 KiB does not become "1024 KiB".
        if (value >= unit.size * 0.9995) return scaled(value, unit.size, unit.name);
    }
    return fmt::format("{} B", bytes);
}

std::string bytes_change_text(std::int64_t bytes) {
    const auto size = static_cast<std::uint64_t>(bytes);
    return fmt::format("{}{}", bytes < 0 ? '-' : '+', bytes_text(bytes < 0 ? ~size + 1 : size));
}

std::string duration_text(double nanoseconds) {
    if (nanoseconds < 999.5) return fmt::format("{:.0f} ns", nanoseconds);
    if (nanoseconds < 999.5e3) return scaled(nanoseconds, 1e3, "us");
    if (nanoseconds < 999.5e6) return scaled(nanoseconds, 1e6, "ms");
    if (nanoseconds < 120e9) return scaled(nanoseconds, 1e9, "s");
    if (nanoseconds >= 1e18) return "years";
    const auto minutes = static_cast<std::uint64_t>(nanoseconds / 60e9);
    if (minutes < 120)
        return fmt::format("{} min {:02} s", minutes,
                           static_cast<std::uint64_t>(nanoseconds / 1e9) % 60);
    return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::string count_text(std::uint64_t count) {
    const std::string digits = std::to_string(count);
    std::string text;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i != 0 && (digits.size() - i) % 3 == 0) text += ',';
        text += digits[i];
    }
    return text;
}

std::string share_text(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) return "-";
    const double percent = 100 * static_cast<double>(part) / static_cast<double>(whole);
    return fmt::format("{:.{}f} %", percent, percent < 9.95 ? 1 : 0);
}

std::string time_text(std::uint64_t epoch_ns) {
    const auto seconds = static_cast<std::time_t>(epoch_ns / 1'000'000'000);
    std::tm local{};
    if (::localtime_r(&seconds, &local) == nullptr) return "an unknown time";
    return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string short_function(std::string_view name) {
    // Names such as operator< and operator() hold what is cut elsewhere: they stay as they are.
    if (name.find("operator") != std::string_view::npos) return std::string(name);
    std::string kept;
    int depth = 0;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const char c = name[i];
        // "(anonymous namespace)::" is a part of the name; a lambda's "{lambda(..)#1}" too.
        if (depth == 0 && name.substr(i).starts_with("(anonymous namespace)::")) {
            i += std::string_view("(anonymous namespace)::").size() - 1;
            continue;
        }
        if (c == '<') {
            ++depth;
        } else if (c == '>') {
            depth -= depth > 0 ? 1 : 0;
        } else if (depth == 0) {
            if (c == '(') break;
            kept += c;
        }
    }
    // What stands before the last blank is the type it returns.
    const std::size_t blank = kept.rfind(' ');
    if (blank != std::string::npos && blank + 1 < kept.size()) kept.erase(0, blank + 1);
    return kept.empty() ? std::string(name) : kept;
}

std::string last_scope(std::string_view function) {
    const std::size_t name = function.rfind("::");
    if (name == std::string_view::npos || name == 0) return std::string(function);
    const std::size_t scope = function.rfind("::", name - 1);
    return scope == std::string_view::npos ? std::string(function)
                                           : std::string(function.substr(scope + 2));
}

std::string cut(std::string_view text, std::size_t width) {
    if (text.size() <= width) return std::string(text);
    if (width < 2) return std::string(text.substr(0, width));
    std::string kept(text.substr(0, width - 2));
    return kept.append("..");
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
    std::string lines(indent, ' ');
    std::size_t column = indent;
    bool first = true;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(' '), text.size());
        if (!first && column + 1 + end > width) {
            lines.append("\n").append(indent + 4, ' ');
            column = indent + 4;
        } else if (!first) {
            lines += ' ';
            ++column;
        }
        lines += text.substr(0, end);
        column += end;
        first = false;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines.append("\n");
}

std::string_view base_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

} // namespace cachealloc::tools
