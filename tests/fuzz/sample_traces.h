// Recordings of every sort, small and the same on every machine: the fuzzer's corpus, what the
// hostile test spoils, and where the golden files came from.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace cachealloc::tests {

struct SampleTrace {
    std::string_view name;
    bool readable; ///< else a reader must refuse it
    std::vector<std::byte> (*make)();
};

/// All samples, by name.
const std::vector<SampleTrace>& sample_traces();

} // namespace cachealloc::tests
