#pragma once

#include "core/record/trace_format.h"

#include <cstdint>

namespace cachealloc::tools {

/// A plain, checked copy of a trace::EventRecord: its kind and type are known ones, its device is
/// below trace::kDevices, and the sizes of memory and segments are below kLargestSize.
struct Event {
    static constexpr std::uint64_t kLargestSize = std::uint64_t{1} << 48;

    std::uint64_t sequence = 0;
    std::uint64_t time = 0; ///< ticks
    std::uint64_t address = 0;
    std::uint64_t size = 0; ///< bytes asked for
    std::uint64_t stream = 0;
    std::uint32_t stack = 0;
    std::uint32_t thread = 0;
    std::uint32_t extra = 0; ///< bytes handed out beyond `size`
    std::uint32_t free_stack = 0;
    trace::EventKind kind = trace::EventKind::none;
    trace::MemoryType memory = trace::MemoryType::none;
    trace::CallName call = trace::CallName::none;
    std::uint8_t device = 0;
    std::uint8_t flags = 0;
    std::uint8_t pool = 255;

    /// Bytes handed out.
    [[nodiscard]] std::uint64_t bytes() const { return size + extra; }
    [[nodiscard]] bool has(trace::EventFlag flag) const { return (flags & flag) != 0; }
};

enum class RecordState : std::uint8_t {
    valid,
    empty,   ///< never written
    older,   ///< of an earlier lap of the ring, or of another slot
    torn,    ///< being written when the process died, or damaged
    unknown, ///< sound, but of a kind, type or size that this reader does not know
};

/// Checks `record`, which must be the reader's own copy, and fills `event` if it is valid.
/// `sequence` is the number that its place calls for; 0 accepts any but 0. O(1).
RecordState decode(const trace::EventRecord& record, std::uint64_t sequence, Event& event);

} // namespace cachealloc::tools
