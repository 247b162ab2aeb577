#pragma once

#include <cstdint>

namespace cachealloc {

struct Block;
struct Segment;

/// Is told what a DevicePool does with its memory, so that it can be recorded.
///
/// Called by the thread that does it, segment_*() under the pool's growth lock; so an observer
/// takes no lock that is ever held while the pool is called, and calls no driver. Must not throw.
class PoolObserver {
  public:
    virtual ~PoolObserver() = default;
    /// A live block was freed; nobody else can get it yet. `settled`: it is fit for reuse by
    /// anybody from now on; else settled() follows.
    virtual void freed(const Block& block, bool settled) = 0;
    /// A block freed before is fit for reuse; nobody else can get it yet.
    virtual void settled(const Block& block) = 0;
    /// The pool got a segment from its source; gives one back: before anybody else can get the
    /// address.
    virtual void segment_allocated(std::uint64_t base, std::uint64_t bytes, bool small) = 0;
    virtual void segment_freed(std::uint64_t base, std::uint64_t bytes, bool small) = 0;
};

} // namespace cachealloc
