#pragma once

#include "core/pool/types.h"

#include <atomic>
#include <cstdint>

namespace cachealloc {

struct Segment;

/// Who holds a block. The arrows: free -> live -> freeing -> (limbo | streamed ->) cached -> live |
/// free.
enum class BlockState : std::uint32_t {
    unused,   ///< a descriptor without memory
    live,     ///< the application's
    freeing,  ///< inside free(), not yet anywhere
    limbo,    ///< freed, earlier users perhaps not done
    aside,    ///< freed beside an open capture, without a fence
    streamed, ///< freed in the order of one stream, which may not have come that far
    cached,   ///< settled, in an exact-size cache
    free,     ///< settled, in the best-fit tree
    stitched, ///< of a growable range: its memory serves the stitch's block that `link` names
    unmapped, ///< of a growable range: addresses without memory
    idle,     ///< the block of a stitch that holds no memory now
};

/// A slice of a segment. Descriptors are never given back to the operating system, so a stale
/// pointer to one may be read (BlockArena).
///
/// Who may touch what: `address`, `size`, `segment`, `previous`, `next` change only under the
/// heap's lock while the block is not live; the owner of the block (the thread that took it out of
/// a cache, or that moved it from live to freeing) may touch the rest.
struct Block {
    DeviceAddress address = 0;
    std::uint64_t size = 0;                  ///< bytes it occupies, a multiple of kBlockAlignment
    std::atomic<std::uint64_t> requested{0}; ///< bytes the application asked for
    std::atomic<BlockState> state{BlockState::unused};
    std::uint32_t index = 0;      ///< its place in the arena
    std::uint32_t bin = 0;        ///< exact-size bin of the request it was cut for
    std::uint32_t generation = 0; ///< counts hand-outs: makes buffer ids unique
    bool barrier_counts = true;   ///< false: only a finished fence settles it
    bool small = false; ///< in a growable range: cut from a slab of small blocks (the heap's lock)
    /// Handed out by a stream-ordered call: natively its free waits for nothing.
    std::atomic<bool> asynchronous{false};
    std::uint32_t event = 0; ///< in stream limbo: the event recorded at its free
    /// Fence clock at its free; in stream limbo, its turn; free in a growable range, a reading
    /// since which nothing has used it.
    std::uint64_t stamp = 0;
    Segment* segment = nullptr;
    Block* previous = nullptr; ///< neighbour below, in the same segment
    Block* next = nullptr;     ///< neighbour above
    /// Link of whichever list holds the block: limbo and aside queues, arena free list; in stream
    /// limbo towards younger blocks, `left` towards older ones.
    Block* link = nullptr;
    std::atomic<std::uint32_t> stack_link{
        0};                ///< link of the shared stacks (an index, see ExactCache)
    Block* left = nullptr; ///< best-fit tree
    Block* right = nullptr;
    Block* lower = nullptr; ///< address tree
    Block* upper = nullptr;
};

} // namespace cachealloc
