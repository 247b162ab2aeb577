#include "tools/replay/allocation_sequence.h"

#include <algorithm>

namespace cachealloc::tools {

std::uint32_t AllocationSequence::allocate(std::uint64_t bytes, std::uint32_t stream,
                                           bool by_stream) {
    const std::uint32_t id = ids++;
    bytes_.push_back(bytes);
    events.push_back({bytes, id, stream, SequenceOp::allocate, true, by_stream});
    live_ += bytes;
    peak_requested = std::max(peak_requested, live_);
    return id;
}

void AllocationSequence::release(std::uint32_t id, std::uint32_t stream, bool settled,
                                 bool by_stream) {
    live_ -= bytes_[id];
    events.push_back({bytes_[id], id, stream, SequenceOp::release, settled, by_stream});
}

void AllocationSequence::complete(std::uint32_t id, bool by_stream) {
    events.push_back({bytes_[id], id, 0, SequenceOp::complete, true, by_stream});
}

} // namespace cachealloc::tools
