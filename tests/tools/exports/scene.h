// Random programs' memory, as a recording and as what is to be expected of its exports.
#pragma once

#include "tests/tools/trace_builder.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace cachealloc::tests {

/// Allocates, frees, grows and shrinks at random on two devices (ordinals 0 and 2), with pool
/// memory, memory of all other types, expandable segments and failures.
class Scene {
  public:
    explicit Scene(std::uint64_t seed);

    /// One more step of the program.
    void step();
    /// What cannot happen: events with fields of any value.
    void nonsense();
    TraceBuilder& builder() { return builder_; }
    std::mt19937_64& random() { return random_; }
    /// What is live now, and how much was at most, as JSON.
    [[nodiscard]] std::string expectation() const;

  private:
    struct Memory {
        std::uint64_t address;
        std::uint64_t size;
        std::uint64_t bytes;
        std::uint64_t segment; ///< pool memory's
        EventDetails details;
    };
    struct Segment {
        std::uint64_t size = 0;
        bool expandable = false;
        std::uint8_t device = 0;
    };

    std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
    EventDetails details(std::uint8_t device);
    void grow(std::uint8_t device);
    void shrink();
    void allocate_pooled(std::uint8_t device);
    void allocate_other(std::uint8_t device);
    void free_one();
    void complete_one();
    void counted(std::uint8_t device, std::uint64_t bytes);
    [[nodiscard]] std::optional<std::uint64_t> gap(std::uint64_t segment,
                                                   std::uint64_t bytes) const;

    std::mt19937_64 random_;
    TraceBuilder builder_;
    std::vector<std::uint32_t> stacks_;
    std::map<std::uint64_t, Segment> segments_;
    std::map<std::pair<int, std::uint64_t>, Memory> live_; ///< by space and address
    std::map<std::uint64_t, Memory> pending_;
    std::map<std::uint8_t, std::uint64_t> bytes_; ///< live, by device
    std::uint64_t peak_ = 0;                      ///< of all devices together
    std::uint64_t next_segment_ = 0x7f0000000000;
    std::uint64_t next_other_ = 0x7e0000000000;
};

} // namespace cachealloc::tests
