#pragma once

#include <cstdint>

namespace cachealloc {

struct Block;
struct Segment;

/// Is told what a DevicePool does with its memory, so that it can be recorded.
///
/// Called by the thread that does it, at times under a lock of the pool (while it grows, while it
/// is buried); so an observer takes no lock that is ever held while the pool is called, and calls
/// no driver. Must not throw.
///
/// Invariant: per block, freed() is followed by settled() exactly once, unless it said so itself,
/// before any of its addresses is handed out or given back; per segment, segment_allocated() comes
/// before all of its blocks and segment_freed() after.
class PoolObserver {
  public:
    virtual ~PoolObserver() = default;
    /// A live block was freed; nobody else can get it yet. `settled`: it is fit for reuse by
    /// anybody from now on; else settled() follows.
    virtual void freed(const Block& block, bool settled) = 0;
    /// A block freed before is fit for reuse, or handed to the one stream that had it; nobody else
    /// can get it yet.
    virtual void settled(const Block& block) = 0;
    /// The pool got a segment from its source; gives one back (said before anybody else can get the
    /// address; where the source refuses, it is allocated once more).
    virtual void segment_allocated(std::uint64_t base, std::uint64_t bytes, bool small) = 0;
    virtual void segment_freed(std::uint64_t base, std::uint64_t bytes, bool small) = 0;
    /// The pool got memory for addresses of its growable range; gives it back. The same order holds
    /// as for segments.
    virtual void memory_mapped(std::uint64_t /*base*/, std::uint64_t /*bytes*/) {}
    virtual void memory_unmapped(std::uint64_t /*base*/, std::uint64_t /*bytes*/) {}
    /// Memory that is mapped already got a second mapping at these addresses; it ends.
    virtual void alias_mapped(std::uint64_t /*base*/, std::uint64_t /*bytes*/) {}
    virtual void alias_unmapped(std::uint64_t /*base*/, std::uint64_t /*bytes*/) {}
};

} // namespace cachealloc
