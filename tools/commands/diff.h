#pragma once

#include "tools/commands/reading.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cachealloc::tools {

/// What two recordings are compared by.
enum class DiffBy : std::uint8_t { live, peak, allocated };

struct DiffOptions {
    ReadOptions read; ///< its file is the older recording
    std::string other;
    DiffBy by = DiffBy::live;
    /// Findings if a stack grew by so many bytes or more.
    std::optional<std::uint64_t> fail_from;
};

/// `cachealloc diff`: what grew from one recording to another, by stack. Stacks are the same where
/// their functions are, so that recordings of different builds and machines can be compared; where
/// no names are known, build-id and offset count. Gives the exit code; throws TraceError.
int diff_main(const DiffOptions& options);

} // namespace cachealloc::tools
