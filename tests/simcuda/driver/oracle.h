// The race oracle: which accesses to memory are ordered by what CUDA promises, whatever the timing.
//
// Invariant: two accesses to the same byte, at least one of them a write, have an order between
// them: the earlier one's (slot, epoch) is contained in the later one's clock. A pair without
// one is reported when the second access happens.
//
// Not thread-safe: the world's lock is held around every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace simcuda {

// What somebody knows: for each slot (a stream, or the host at slot 0) the epoch up to which its
// accesses are ordered before. Missing entries are 0.
using Clock = std::vector<std::uint32_t>;

// into = maximum of both, per slot. O(slots).
void join(Clock& into, const Clock& other);

// One access as it is remembered.
struct Stamp {
    std::uint32_t slot = 0;
    std::uint32_t epoch = 0;
    std::uint64_t op = 0;
    std::shared_ptr<const std::string> label;
};

struct Race {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    Stamp earlier;
    Stamp later;
    bool earlier_writes = false;
    bool later_writes = false;
};

// Remembers the last write and the last read per slot of each byte range.
class Oracle {
  public:
    // Checks an access against the history, then adds it. Returns the races found; each pair of
    // operations is returned once in the oracle's life. O(log ranges + ranges touched).
    std::vector<Race> access(std::uintptr_t begin, std::uintptr_t end, bool write,
                             const Stamp& stamp, const Clock& clock);

    // Drops the history of a range: the driver gave the memory back.
    void forget(std::uintptr_t begin, std::uintptr_t end);

    std::size_t ranges() const { return cells_.size(); }

  private:
    struct Cell {
        std::uintptr_t end = 0;
        bool written = false;
        Stamp write;
        std::vector<Stamp> reads;
    };
    using Cells = std::map<std::uintptr_t, Cell>;

    Cells::iterator split(std::uintptr_t at);

    Cells cells_; // disjoint ranges by their begin
    std::set<std::pair<std::uint64_t, std::uint64_t>> reported_;
};

} // namespace simcuda
