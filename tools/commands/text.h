// Numbers and names for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cachealloc::tools {

/// "512 B", "1.50 KiB", "23.4 MiB", "141 GiB": three digits that matter.
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
/// With its sign, for differences.
[[nodiscard]] std::string bytes_change_text(std::int64_t bytes);
/// "12.3 us", "450 ms", "7.25 s", "2 h 05 min".
[[nodiscard]] std::string duration_text(double nanoseconds);
/// "1,234,567".
[[nodiscard]] std::string count_text(std::uint64_t count);
/// "12.3 %"; "-" of nothing.
[[nodiscard]] std::string share_text(std::uint64_t part, std::uint64_t whole);
/// The local time of day with its date, to the second.
[[nodiscard]] std::string time_text(std::uint64_t epoch_ns);
/// A function's name without parameters and template arguments.
[[nodiscard]] std::string short_function(std::string_view name);
/// "Pool::take" of "lib::detail::Pool::take".
[[nodiscard]] std::string last_scope(std::string_view function);
/// `text`, or its beginning and "..", at most `width` columns.
[[nodiscard]] std::string cut(std::string_view text, std::size_t width);
/// `text` in lines of at most `width` columns, broken at blanks; each begins with `indent` blanks,
/// those after the first with four more. Ends with a newline.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);
/// The last part of a path.
[[nodiscard]] std::string_view base_name(std::string_view path);

} // namespace cachealloc::tools
