#pragma once

#include "core/pool/block.h"
#include "core/pool_observer.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

/// Keeps the books of what a pool tells its observer, and of what it hands out, and complains where
/// the two do not fit: each free is settled exactly once before its addresses are used again,
/// nothing is said twice, blocks lie in segments and segments do not overlap. Thread-safe.
class PoolLedger : public cachealloc::PoolObserver {
  public:
    using Address = std::uint64_t;

    /// An allocation was returned; to be said before anybody can free it.
    void handed_out(const cachealloc::Block& block) {
        const std::lock_guard lock(mutex_);
        if (overlaps(blocks_, block.address, block.size)) complain("handed out while in use");
        if (!covered(block.address, block.size)) {
            complain("handed out outside all segments");
        }
        blocks_[block.address] = {block.size, false};
    }

    void freed(const cachealloc::Block& block, bool settled) override {
        const std::lock_guard lock(mutex_);
        ++frees_;
        const auto found = blocks_.find(block.address);
        if (found == blocks_.end() || found->second.pending || found->second.bytes != block.size) {
            complain("freed although it was not live");
        } else if (settled) {
            blocks_.erase(found);
        } else {
            found->second.pending = true;
        }
    }
    void settled(const cachealloc::Block& block) override {
        const std::lock_guard lock(mutex_);
        ++settled_later_;
        const auto found = blocks_.find(block.address);
        if (found == blocks_.end() || !found->second.pending || found->second.bytes != block.size) {
            complain("settled although it was not freed");
        } else {
            blocks_.erase(found);
        }
    }
    void segment_allocated(Address base, std::uint64_t bytes, bool small) override {
        const std::lock_guard lock(mutex_);
        if (overlaps(segments_, base, bytes)) complain("segments overlap");
        segments_[base] = {bytes, small};
    }
    void segment_freed(Address base, std::uint64_t bytes, bool small) override {
        const std::lock_guard lock(mutex_);
        if (overlaps(blocks_, base, bytes)) complain("segment freed under a block");
        const auto found = segments_.find(base);
        if (found == segments_.end() || found->second.bytes != bytes ||
            found->second.pending != small) {
            complain("unknown segment freed");
        } else {
            segments_.erase(found);
        }
    }
    /// Growable memory is a segment that may be given back in other parts than it came in.
    void memory_mapped(Address base, std::uint64_t bytes) override {
        segment_allocated(base, bytes, false);
    }
    void memory_unmapped(Address base, std::uint64_t bytes) override {
        const std::lock_guard lock(mutex_);
        if (overlaps(blocks_, base, bytes)) complain("memory unmapped under a block");
        if (!covered(base, bytes)) complain("unknown memory unmapped");
        cut_at(base);
        cut_at(base + bytes);
        segments_.erase(segments_.lower_bound(base), segments_.lower_bound(base + bytes));
    }
    void alias_mapped(Address base, std::uint64_t bytes) override {
        segment_allocated(base, bytes, true);
        const std::lock_guard lock(mutex_);
        alias_bytes_ += bytes;
    }
    void alias_unmapped(Address base, std::uint64_t bytes) override {
        segment_freed(base, bytes, true);
        const std::lock_guard lock(mutex_);
        alias_bytes_ -= bytes;
    }

    std::string first_complaint() const {
        const std::lock_guard lock(mutex_);
        return complaint_;
    }
    std::uint64_t segment_bytes() const {
        const std::lock_guard lock(mutex_);
        std::uint64_t sum = 0;
        for (const auto& [base, segment] : segments_)
            sum += segment.bytes;
        return sum - alias_bytes_;
    }
    /// Blocks that are live, or freed and not yet settled.
    std::size_t blocks() const {
        const std::lock_guard lock(mutex_);
        return blocks_.size();
    }
    std::uint64_t frees() const {
        const std::lock_guard lock(mutex_);
        return frees_;
    }
    std::uint64_t settled_later() const {
        const std::lock_guard lock(mutex_);
        return settled_later_;
    }

  private:
    struct Range {
        std::uint64_t bytes;
        bool pending; ///< of a block: freed, not yet settled; of a segment: a small one
    };
    using Ranges = std::map<Address, Range>;

    static Ranges::const_iterator around(const Ranges& ranges, Address address) {
        const auto after = ranges.upper_bound(address);
        if (after == ranges.begin()) return ranges.end();
        const auto found = std::prev(after);
        return address < found->first + found->second.bytes ? found : ranges.end();
    }
    /// Whether all of these addresses have memory.
    bool covered(Address address, std::uint64_t bytes) const {
        const Address end = address + bytes;
        while (address < end) {
            const auto segment = around(segments_, address);
            if (segment == segments_.end()) return false;
            address = segment->first + segment->second.bytes;
        }
        return true;
    }
    /// Makes what crosses `address` two.
    void cut_at(Address address) {
        const auto found = around(segments_, address);
        if (found == segments_.end() || found->first == address) return;
        Range& lower = segments_[found->first];
        segments_[address] = {found->first + lower.bytes - address, lower.pending};
        lower.bytes = address - found->first;
    }
    static bool overlaps(const Ranges& ranges, Address address, std::uint64_t bytes) {
        if (around(ranges, address) != ranges.end()) return true;
        const auto next = ranges.lower_bound(address);
        return next != ranges.end() && next->first < address + bytes;
    }
    void complain(const char* what) {
        if (complaint_.empty()) complaint_ = what;
    }

    mutable std::mutex mutex_;
    Ranges blocks_;
    Ranges segments_;
    std::uint64_t frees_ = 0;
    std::uint64_t settled_later_ = 0;
    std::uint64_t alias_bytes_ = 0;
    std::string complaint_;
};
