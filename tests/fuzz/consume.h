#pragma once

#include <string>

namespace cachealloc::tests {

/// Does with a recording all that the tool does: opens it, goes through its history, analyses,
/// reports and exports it; nothing is printed. False if the file was refused with a TraceError of
/// one line. Whatever else is thrown is a bug and goes through.
bool consume(const std::string& path);

} // namespace cachealloc::tests
