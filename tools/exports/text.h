// Text as the formats want it.
#pragma once

#include <string>
#include <string_view>

namespace cachealloc::tools {

/// `text` with each byte that is not part of valid UTF-8 replaced by '?'. Paths and names in a
/// recording may hold anything; readers of JSON and pickles stop at invalid text.
[[nodiscard]] std::string valid_utf8(std::string_view text);

/// `text` as a JSON string, with its quotes.
[[nodiscard]] std::string json_string(std::string_view text);

} // namespace cachealloc::tools
