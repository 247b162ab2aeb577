#pragma once

#include <stdexcept>
#include <string>

namespace cachealloc::tools {

/// A recording cannot be read at all. The message is one line: which file, what is wrong, what to
/// do.
class TraceError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

} // namespace cachealloc::tools
