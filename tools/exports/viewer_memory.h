// One device's memory as memory_viz shows it: segments, each tiled by blocks.
//
// Invariant: at every moment segments do not overlap, blocks do not overlap, and each block lies in
// one segment. What was given to the sink, taken back from its end, leads from the segments of now
// to those of any earlier moment: whatever the recording says, the page can replay it.
//
// Memory that the pool does not own has a segment of its own for each block. Memory that has no
// address on the device (arrays, physical memory) gets addresses that no device memory has.
#pragma once

#include "tools/analysis/state.h"
#include "tools/trace/event.h"

#include <cstdint>
#include <map>
#include <unordered_map>

namespace cachealloc::tools {

enum class ViewerAction : std::uint8_t {
    alloc,
    free_requested,
    free_completed,
    segment_alloc,
    segment_free,
    segment_map,
    segment_unmap,
};

/// What is shown of a block or a segment.
struct ViewerItem {
    std::uint64_t size = 0;      ///< bytes it takes up
    std::uint64_t requested = 0; ///< a block's bytes as asked for
    std::uint64_t stream = 0;
    std::uint32_t stack = 0;
    trace::MemoryType memory = trace::MemoryType::pooled;
    std::uint8_t pool = 0;
    bool large = false;      ///< a segment's kind
    bool expandable = false; ///< a segment that grows
    bool single = false;     ///< a segment that goes with its one block
    bool pending = false;    ///< a block that was freed and is not fit for reuse yet
    Place place;             ///< a block's, as the recording has it
};

/// Is told of every change, in an order that can be replayed.
class ViewerSink {
  public:
    virtual ~ViewerSink() = default;
    /// `stack` is that of the cause, where it is known, else the item's.
    virtual void on_change(ViewerAction action, std::uint64_t address, const ViewerItem& item,
                           std::uint32_t stack, const Event& cause) = 0;
};

class ViewerMemory {
  public:
    using Items = std::map<std::uint64_t, ViewerItem>;

    ViewerMemory(std::uint8_t device, ViewerSink& sink) : device_(device), sink_(&sink) {}

    /// Takes in what was there before the first event.
    void start(const State& state);
    /// Follows an event; those of other devices change nothing. O(log live).
    void apply(const Event& event);
    /// Ends what is not there any more by the state after the last event. `last` is its cause.
    void reconcile(const State& state, const Event& last);

    /// By address.
    [[nodiscard]] const Items& segments() const { return segments_; }
    [[nodiscard]] const Items& blocks() const { return blocks_; }
    [[nodiscard]] std::uint8_t device() const { return device_; }
    /// Things that cannot be shown: no size, no such address, two at one place.
    [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

  private:
    void add_block(const Block& block, const Event& cause);
    void free_block(const Event& event);
    void complete(Items::iterator block, const Event& cause);
    /// Ends a block, whatever it is.
    void end_block(Items::iterator block, const Event& cause);
    void end_blocks(std::uint64_t address, std::uint64_t size, const Event& cause);
    void add_segment(const MemorySegment& segment, const Event& cause);
    void map_segment(std::uint64_t address, ViewerItem item, const Event& cause);
    void unmap_segment(std::uint64_t address, std::uint64_t size, const Event& cause);
    void end_segment(Items::iterator segment, const Event& cause);
    void end_segments(std::uint64_t address, std::uint64_t size, const Event& cause);
    std::uint64_t address_of(const Place& place, std::uint64_t size, bool is_new);
    Items::iterator find_block(const Event& event);
    void tell(ViewerAction action, Items::iterator item, std::uint32_t stack, const Event& cause);

    const std::uint8_t device_;
    ViewerSink* sink_;
    Items segments_;
    Items blocks_;
    std::unordered_map<std::uint64_t, std::uint64_t> handles_[2]; ///< arrays, physical memory
    std::uint64_t next_handle_ = 0;
    std::uint64_t left_out_ = 0;
};

} // namespace cachealloc::tools
