#pragma once

#include <cstdint>
#include <string>

namespace cachealloc::tests {

/// Does with a recording what the tool does: opens it, goes through its history, and runs two of
/// its commands and exports, which depend on `choice`; what they print goes where standard output
/// and standard error go. False if the file was refused with a TraceError of one line. Whatever
/// else is thrown is a bug and goes through.
bool consume(const std::string& path, std::uint64_t choice);

/// There are so many choices.
inline constexpr std::uint64_t kChoices = 40;

} // namespace cachealloc::tests
