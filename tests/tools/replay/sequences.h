#pragma once

#include "tests/tools/temporary_file.h"
#include "tools/replay/allocation_sequence.h"
#include "tools/trace/trace_error.h"

#include <random>
#include <string>
#include <string_view>

namespace cachealloc::tests {

/// A file of that text.
class TextFile : public TemporaryFile {
  public:
    explicit TextFile(std::string_view text) : TemporaryFile(bytes(text)) {}

  private:
    static std::vector<std::byte> bytes(std::string_view text) {
        const auto* const first = reinterpret_cast<const std::byte*>(text.data());
        return {first, first + text.size()};
    }
};

/// The message of the TraceError that `act` throws; empty if it throws none.
template <class Act>
std::string trace_error(Act&& act) {
    try {
        act();
    } catch (const tools::TraceError& error) {
        return error.what();
    }
    return {};
}

/// `count` allocations of 512 B .. 32 MiB, at most `most` live, all freed at the end.
inline tools::AllocationSequence random_sequence(unsigned seed, unsigned count, std::size_t most) {
    std::mt19937 random(seed);
    tools::AllocationSequence sequence;
    std::vector<std::uint32_t> live;
    const auto release = [&] {
        const std::size_t victim = random() % live.size();
        sequence.release(live[victim]);
        live[victim] = live.back();
        live.pop_back();
    };
    for (unsigned i = 0; i < count; ++i) {
        while (live.size() >= most || (!live.empty() && random() % 3 == 0))
            release();
        const std::uint64_t power = std::uint64_t{512} << (random() % 16);
        live.push_back(sequence.allocate(power + random() % power));
    }
    while (!live.empty())
        release();
    return sequence;
}

} // namespace cachealloc::tests
