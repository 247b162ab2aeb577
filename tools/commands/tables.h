// Pieces that several commands print.
#pragma once

#include "tools/analysis/holders.h"
#include "tools/commands/stack_names.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace cachealloc::tools {

using Json = nlohmann::ordered_json;

/// What the width of a terminal is taken for.
inline constexpr std::size_t kColumns = 110;

/// "pooled", or "managed, pinned" for several.
[[nodiscard]] std::string types_text(std::uint32_t types);
/// One line a holder: bytes, share of `whole`, blocks, the telling frames; at most `top`, then a
/// line that sums up the others.
[[nodiscard]] std::string holders_text(const std::vector<Holder>& holders, std::uint64_t whole,
                                       std::size_t top, StackNames& names);
/// The frames of a stack, a line each, at most `most`; indented.
[[nodiscard]] std::string frames_text(std::uint32_t stack, std::size_t most, StackNames& names);

/// The same for programs. Times are seconds since the recording's start.
[[nodiscard]] Json frames_json(std::uint32_t stack, StackNames& names);
[[nodiscard]] Json holders_json(const std::vector<Holder>& holders, std::size_t top,
                                const Clock& clock, StackNames& names);

/// Prints a JSON document to standard output. Text that is not UTF-8 is repaired.
void print_json(const Json& document);

} // namespace cachealloc::tools
