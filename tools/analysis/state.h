// What memory there was at one moment of a recording.
#pragma once

#include "tools/analysis/flat_map.h"
#include "tools/trace/event.h"

#include <array>
#include <cstdint>
#include <map>

namespace cachealloc::tools {

/// Memory of the program, or of a freed block that is not fit for reuse yet.
struct Block {
    std::uint64_t address = 0;
    std::uint64_t size = 0; ///< bytes asked for
    std::uint64_t since =
        0; ///< ticks of its allocation; a pending block's: of its free. 0: unknown
    std::uint64_t stream = 0;
    std::uint32_t stack = 0;
    std::uint32_t thread = 0;
    std::uint32_t extra = 0;
    trace::MemoryType memory = trace::MemoryType::none;
    std::uint8_t device = 0;
    std::uint8_t flags = 0; ///< trace::EventFlag bits of its allocation
    std::uint8_t pool = 255;

    [[nodiscard]] std::uint64_t bytes() const { return size + extra; }
    [[nodiscard]] Place place() const {
        return {address, static_cast<std::uint8_t>(trace::space_of(memory))};
    }
};

/// Memory that the pool got from the driver.
struct MemorySegment {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t since = 0; ///< ticks; 0: unknown, before the first event
    std::uint32_t stack = 0;
    std::uint8_t device = 0;
    std::uint8_t pool = 255;
    bool large = false;
    bool expandable = false; ///< a part of one that grows: from segment_map
    bool second = false;     ///< its memory is that of other segments: takes up none
};

/// Bytes on one device. `live` and `host` count what was asked for, as DeviceCounters do.
struct DeviceBytes {
    std::uint64_t live = 0;     ///< all types that take up memory of the device
    std::uint64_t pooled = 0;   ///< of it, from the pool
    std::uint64_t handed = 0;   ///< pooled, with the rounding
    std::uint64_t reserved = 0; ///< segments
    std::uint64_t pending = 0;  ///< freed but unfinished, with the rounding
    std::uint64_t host = 0;     ///< pinned
};

/// Blocks, pending blocks and segments; changed by History alone. Sums wrap silently if a hostile
/// file makes them overflow.
class State {
  public:
    [[nodiscard]] const DeviceBytes& device(std::uint8_t ordinal) const {
        return devices_[ordinal % trace::kDevices];
    }
    [[nodiscard]] const FlatMap<Block>& live() const { return live_; }
    /// Freed pool memory that is not fit for reuse yet, by address.
    [[nodiscard]] const std::map<std::uint64_t, Block>& pending() const { return pending_; }
    /// By address.
    [[nodiscard]] const std::map<std::uint64_t, MemorySegment>& segments() const {
        return segments_;
    }

    void add_live(const Block& block);
    /// False if it is not there; `block` is then left alone.
    bool remove_live(const Place& place, Block& block);
    void add_pending(const Block& block);
    bool remove_pending(std::uint64_t address, Block& block);
    /// Ends all pending blocks that share an address with [address, address + bytes).
    void end_pending(std::uint64_t address, std::uint64_t bytes);
    void add_segment(const MemorySegment& segment);
    bool remove_segment(std::uint64_t address);

  private:
    DeviceBytes& bytes_of(std::uint8_t ordinal) { return devices_[ordinal % trace::kDevices]; }
    void count(const Block& block, std::uint64_t sign);

    FlatMap<Block> live_;
    std::map<std::uint64_t, Block> pending_;
    std::map<std::uint64_t, MemorySegment> segments_;
    std::array<DeviceBytes, trace::kDevices> devices_{};
};

/// The block that an alloc event makes; that a free event ends, whose age is unknown.
[[nodiscard]] Block block_of(const Event& event);
/// The segment of a segment_alloc, segment_map, segment_free or segment_unmap event.
[[nodiscard]] MemorySegment segment_of(const Event& event);

} // namespace cachealloc::tools
