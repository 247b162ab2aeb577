#include "tools/exports/text.h"

#include <array>
#include <cstddef>
#include <cstdio>

namespace cachealloc::tools {
namespace {

/// Bytes of the valid sequence at the front of `text`; 0 if there is none.
std::size_t sequence_length(std::string_view text) {
    const auto byte = [text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char first = byte(0);
    if (first < 0x80) {
        return 1;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) {
        return 0;
    }
    for (std::size_t at = 1; at < length; ++at) {
        if ((byte(at) & 0xc0) != 0x80) {
            return 0;
        }
    }
    // Too long for what they say, surrogates, and what lies beyond Unicode.
    const unsigned char second = byte(1);
    const bool invalid = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                         (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
    return invalid ? 0 : length;
}

} // namespace

std::string valid_utf8(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        if (length == 0) {
            result += '?';
        } else {
            result += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return result;
}

std::string json_string(std::string_view text) {
    std::string result = "\"";
    for (const char c : valid_utf8(text)) {
        const auto code = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (code < 0x20) {
            std::array<char, 8> escape;
            std::snprintf(escape.data(), escape.size(), "\\u%04x", code);
            result += escape.data();
        } else {
            result += c;
        }
    }
    return result += '"';
}

} // namespace cachealloc::tools
