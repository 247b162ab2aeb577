// What torch.cuda.memory_stats() would say of each device at the end of a recording.
#pragma once

#include "core/memory_stats.h"
#include "tools/analysis/flat_map.h"
#include "tools/analysis/history.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>

namespace cachealloc::tools {

struct KnownMemoryStats {
    MemoryStats values;
    bool from_events = false; ///< exact to the last event; else as the process last noted them
};

/// Counts by the events; for a history that is whole. What no event tells stays 0.
///
/// Invariant: the active blocks of each classic segment, which never overlap; of the free memory
/// around them how many pieces there are. Sums of a hostile file may be wrong, never undefined.
class MemoryStatsCounter : public HistoryVisitor {
  public:
    void on_event(const Event& event, const State& state, const Block* ended) override;

    [[nodiscard]] const MemoryStats& device(std::uint8_t ordinal) const {
        return devices_[ordinal % trace::kDevices];
    }
    /// Whether memory was mapped in pieces: one call of the driver may then be several events.
    [[nodiscard]] bool mapped(std::uint8_t ordinal) const {
        return mapped_[ordinal % trace::kDevices];
    }

  private:
    struct Segment {
        std::uint64_t base;
        std::uint64_t size;
        SizeClass which;
        std::uint8_t device;
        std::uint64_t active = 0; ///< blocks
        std::uint64_t active_bytes = 0;
        std::uint64_t pieces = 0; ///< of free memory; of no account while nothing is active

        [[nodiscard]] std::uint64_t end() const { return base + size; }
    };

    MemoryStats& of(std::uint8_t ordinal) { return devices_[ordinal % trace::kDevices]; }
    void change_active(const Block& block, std::int64_t sign);
    void change_pieces(const Block& block, bool active);
    void change_segment(const Event& event, std::int64_t sign, bool classic);

    std::array<MemoryStats, trace::kDevices> devices_{};
    std::array<bool, trace::kDevices> mapped_{};
    std::map<std::uint64_t, Segment> segments_; ///< classic ones, by address
    FlatMap<char> borders_; ///< starts and ends of active blocks, told apart by Place::space
};

/// The counter's result with what only the process itself knows, if the history is whole; else what
/// the process noted; none where there is neither.
[[nodiscard]] std::optional<KnownMemoryStats>
memory_stats_of(const History& history, const MemoryStatsCounter& counter, std::uint8_t device);

} // namespace cachealloc::tools
