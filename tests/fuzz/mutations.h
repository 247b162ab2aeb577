// Spoils a recording where it hurts: in the fields that a reader must check, with the check words
// put right again, so that what is behind them is reached too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cachealloc::tests {

/// xorshift64*: the same numbers on every machine.
class FuzzRandom {
  public:
    explicit FuzzRandom(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1Du;
    }
    /// Below `bound`, which is not 0.
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  private:
    std::uint64_t state_;
};

/// Changes one thing: a number of the header or of the section table, a field of an event, of a
/// live entry, of a stack, of a module, a few bytes anywhere, or the file's length. What is too
/// short for a header only changes in single bytes. O(1) but for the length.
void mutate(std::vector<std::byte>& bytes, FuzzRandom& random);

} // namespace cachealloc::tests
