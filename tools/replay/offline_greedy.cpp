#include "tools/replay/offline_greedy.h"

#include <algorithm>
#include <chrono>

namespace cachealloc::tools {

namespace {

/// Live in the events [from, to).
struct Buffer {
    std::uint64_t bytes = 0;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    std::uint64_t address = 0;

    /// What the order goes by, and what parts equal ones.
    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> rank(GreedyOrder order) const {
        switch (order) {
        case GreedyOrder::size:
            return {bytes, to - from};
        case GreedyOrder::lifetime:
            return {to - from, bytes};
        case GreedyOrder::area:
            return {bytes * (to - from), bytes};
        }
        return {};
    }
};

std::vector<Buffer> buffers_of(const AllocationSequence& sequence, ReplayResult& result) {
    std::vector<Buffer> buffers(sequence.ids);
    std::uint64_t requested = 0;
    std::uint64_t rounded = 0;
    for (std::uint64_t i = 0; i < sequence.events.size(); ++i) {
        const SequenceEvent& event = sequence.events[i];
        const std::uint64_t bytes = aligned_bytes(event.bytes);
        if (event.op == SequenceOp::allocate) {
            buffers[event.id] = {bytes, i, sequence.events.size(), 0};
            result.peak_requested = std::max(result.peak_requested, requested += event.bytes);
            result.peak_rounded = std::max(result.peak_rounded, rounded += bytes);
        } else if (event.op == SequenceOp::release) {
            buffers[event.id].to = i;
            requested -= event.bytes;
            rounded -= bytes;
        }
    }
    return buffers;
}

/// The lowest place free in all of the buffer's life; `placed` is sorted by address.
std::uint64_t lowest_place(const std::vector<const Buffer*>& placed, const Buffer& buffer) {
    std::uint64_t address = 0;
    for (const Buffer* const other : placed) {
        if (other->to <= buffer.from || buffer.to <= other->from) continue;
        if (other->address >= address + buffer.bytes) break;
        address = std::max(address, other->address + other->bytes);
    }
    return address;
}

} // namespace

const char* greedy_name(GreedyOrder order) {
    static constexpr const char* kNames[] = {"greedy by size", "greedy by lifetime",
                                             "greedy by area"};
    return kNames[static_cast<std::size_t>(order)];
}

ReplayResult replay_greedy(const AllocationSequence& sequence, GreedyOrder order, GreedyTies ties,
                           std::uint64_t limit) {
    ReplayResult result;
    result.policy = greedy_name(order);
    result.steady_steps = SteadyPart(sequence, kDefaultSteps).steps;
    const auto start = std::chrono::steady_clock::now();
    std::vector<Buffer> buffers = buffers_of(sequence, result);
    std::ranges::stable_sort(buffers, std::greater{}, [order, ties](const Buffer& buffer) {
        auto rank = buffer.rank(order);
        if (ties == GreedyTies::earlier) rank.second = 0; // they come in the order of time
        return rank;
    });
    std::vector<const Buffer*> placed;
    placed.reserve(buffers.size());
    for (Buffer& buffer : buffers) {
        buffer.address = lowest_place(placed, buffer);
        result.peak_reserved = std::max(result.peak_reserved, buffer.address + buffer.bytes);
        placed.insert(std::ranges::upper_bound(placed, buffer.address, {}, &Buffer::address),
                      &buffer);
    }
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.events = sequence.events.size();
    result.allocations = sequence.ids;
    result.calls.allocate = result.calls.single = 1;
    if (result.peak_reserved > limit)
        result.failure = ReplayFailure{0, result.peak_reserved, 0, 0, 0, limit};
    return result;
}

ReplayResult replay_greedy(const AllocationSequence& sequence, std::uint64_t limit) {
    std::optional<ReplayResult> best;
    double seconds = 0;
    for (const GreedyOrder order : {GreedyOrder::size, GreedyOrder::lifetime, GreedyOrder::area}) {
        for (const GreedyTies ties : {GreedyTies::earlier, GreedyTies::other_rank}) {
            ReplayResult result = replay_greedy(sequence, order, ties, limit);
            seconds += result.seconds;
            if (!best || result.peak_reserved < best->peak_reserved) best = std::move(result);
        }
    }
    best->seconds = seconds;
    return *best;
}

} // namespace cachealloc::tools
