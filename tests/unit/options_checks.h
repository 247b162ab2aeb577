// What the tests of the options have in common.
#pragma once

#include "core/options.h"

#include <catch2/catch.hpp>
#include <string>
#include <string_view>

namespace cachealloc {

inline constexpr std::uint64_t kMiB = Options::kMiB;

// The options of a text that must give no line at all.
inline Options clean(std::string_view text) {
    ParseReport report;
    const Options options = parse_options(text, report);
    INFO(text);
    for (std::size_t i = 0; i < report.size(); ++i) {
        UNSCOPED_INFO(report[i]);
    }
    CHECK(report.empty());
    CHECK(report.mistakes() == 0);
    return options;
}

// The only line of a text with one mistake; the options must be `expected`.
inline std::string complaint(std::string_view text, const Options& expected = {}) {
    ParseReport report;
    const Options options = parse_options(text, report);
    INFO(text);
    CHECK(options == expected);
    CHECK(report.mistakes() == 1);
    REQUIRE(report.size() == 1);
    return std::string(report[0]);
}

inline bool within(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

} // namespace cachealloc
