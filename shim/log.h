// The few lines the library writes to standard error.
//
// Invariant: a process gets at most kMaxLogLines lines and one more that says so, each prefixed
// "cachealloc: ", each in one write(2), so that lines of several threads never mix. Writing a line
// changes nothing the host can see: errno, the signals pending and the cancellation state stay as
// they were, and a standard error that is closed, or whose reader has gone, costs only the line.
//
// Every function may be called from any thread and in a forked child, takes no lock and never
// throws. Nothing is set up before the first line; that one makes the logger (a few small heap
// blocks, kept for good), and if that fails the line goes out without it.
#pragma once

#include "core/options.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cachealloc::shim {

inline constexpr std::uint32_t kMaxLogLines = 32;
// Longer lines are cut, prefix and newline included, and end in "...".
inline constexpr std::size_t kMaxLogLineBytes = 1024;

// error: the process cannot go on as asked (an option under `strict`, out of memory).
// warning: something the user should know and can do something about.
// info: what explains; for those who asked for it.
enum class LogLevel : std::uint8_t { error, warning, info };

// From now on: `quiet` writes errors only, `normal` warnings too, `verbose` all. Until it is called
// `normal` holds.
void set_log_detail(LogDetail detail) noexcept;

// Whether a line of that level would be written, as far as the detail goes: for a caller whose line
// costs something to make.
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

// Writes `text`, one line without newline; control characters in it are written as '?'.
void log(LogLevel level, std::string_view text) noexcept;

// The same with printf's formatting, done on the stack.
[[gnu::format(printf, 2, 3), gnu::nonnull(2)]] void logf(LogLevel level, const char* format,
                                                         ...) noexcept;

// Like `log`, but only the first time for `key` in this process. Up to 128 keys are told apart;
// later ones stay unsaid. True if this call was the first and the level is enabled.
bool log_once(std::string_view key, LogLevel level, std::string_view text) noexcept;

// Writes the lines of `text`, each prefixed, whatever the detail and without counting them: for
// what the user asked to see, such as statistics at exit.
void log_report(std::string_view text) noexcept;

} // namespace cachealloc::shim
