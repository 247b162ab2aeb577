#pragma once

#include "core/pool/memory_source.h"
#include "tools/replay/allocation_sequence.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cachealloc::tools {

/// How often the driver would have been called.
struct DriverCalls {
    std::uint64_t allocate = 0;   ///< cuMemAlloc
    std::uint64_t release = 0;    ///< cuMemFree
    std::uint64_t grow = 0;       ///< map(): memory behind a range
    std::uint64_t shrink = 0;     ///< unmap()
    std::uint64_t remaps = 0;     ///< runs of pieces mapped a second time
    std::uint64_t drop = 0;       ///< second mappings given up
    std::uint64_t pieces = 0;     ///< made by map()
    std::uint64_t piece_maps = 0; ///< pieces mapped a second time
    std::uint64_t single = 0;     ///< every single call of the driver's interface

    /// Changes of what is mapped: what a bound on driver calls counts.
    [[nodiscard]] std::uint64_t changes() const {
        return allocate + release + grow + shrink + remaps + drop;
    }
};

/// Memory that is only counted: what a device would have given and taken back. A second mapping
/// takes addresses, not memory.
///
/// Invariant: reserved() is the sum of what allocate() and map() gave and was not given back. What
/// breaks a rule of MemorySource (a piece unmapped in part or under an alias, an alias of what is
/// not mapped) is refused and told by fault().
///
/// Not thread-safe.
class SimulatedSource final : public MemorySource {
  public:
    /// More than any device has; the pool reserves addresses in proportion, of which there are
    /// 2^51.
    static constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 44;

    /// At most `limit` bytes at once. allocate() gives the addresses of `recorded` in turn, as long
    /// as sizes agree: the pool prefers low addresses among equals, so a replay with other
    /// addresses could go another way. `recorded` must outlive this object; may be null.
    explicit SimulatedSource(std::uint64_t limit = kNoLimit,
                             const std::vector<RecordedSegment>* recorded = nullptr)
        : limit_(limit), recorded_(recorded) {}

    SourceResult allocate(std::uint64_t bytes) override;
    SourceResult release(DeviceAddress address, std::uint64_t bytes) override;
    [[nodiscard]] std::uint64_t total_bytes() const override { return limit_; }
    SourceResult reserve(std::uint64_t bytes) override;
    void unreserve(DeviceAddress address, std::uint64_t bytes) override;
    SourceResult map(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece) override;
    SourceResult unmap(DeviceAddress address, std::uint64_t bytes) override;
    SourceResult alias(const PieceRun* runs, std::uint32_t count) override;
    SourceResult drop_alias(DeviceAddress address, std::uint64_t bytes) override;

    [[nodiscard]] std::uint64_t reserved() const { return reserved_; }
    [[nodiscard]] std::uint64_t peak() const { return peak_; }
    [[nodiscard]] const DriverCalls& calls() const { return calls_; }
    /// The first broken rule; empty if none was.
    [[nodiscard]] const std::string& fault() const { return fault_; }

    /// Calls visit(address, bytes) for each segment and each piece, by address.
    template <class Visit>
    void for_each_memory(Visit&& visit) const {
        for (const auto& [address, bytes] : segments_)
            visit(address, bytes);
        for (const auto& [address, piece] : pieces_)
            visit(address, piece.bytes);
    }

    /// Calls visit(address, bytes) for each part of the memory behind [address, address + bytes),
    /// named by the addresses of for_each_memory(); no part reaches over a segment's or piece's
    /// end.
    template <class Visit>
    void resolve(DeviceAddress address, std::uint64_t bytes, Visit&& visit) const;

  private:
    struct Piece {
        std::uint64_t bytes = 0;
        std::uint32_t aliases = 0;
    };
    struct Alias {
        std::uint64_t bytes = 0;
        std::vector<PieceRun> runs;
    };

    SourceResult refuse(const char* rule);
    DeviceAddress new_address(std::uint64_t bytes);
    void free_address(DeviceAddress address, std::uint64_t bytes);
    [[nodiscard]] bool overlaps_segment(DeviceAddress address, std::uint64_t bytes) const;
    bool take(std::uint64_t bytes);
    template <class Change>
    bool each_piece(DeviceAddress address, std::uint64_t bytes, Change&& change);
    template <class Visit>
    void resolve_pieces(DeviceAddress address, std::uint64_t bytes, Visit&& visit) const;

    const std::uint64_t limit_;
    const std::vector<RecordedSegment>* const recorded_;
    std::size_t next_recorded_ = 0;
    static constexpr DeviceAddress kFirstOwn = std::uint64_t{1} << 48; ///< no recorded one is above
    DeviceAddress next_ = kFirstOwn;
    std::map<std::uint64_t, std::vector<DeviceAddress>> freed_; ///< own ones to use again, by size
    std::map<DeviceAddress, std::uint64_t> segments_;
    std::map<DeviceAddress, std::uint64_t> ranges_;
    std::map<DeviceAddress, Piece> pieces_;
    std::map<DeviceAddress, Alias> aliases_;
    std::uint64_t reserved_ = 0;
    std::uint64_t peak_ = 0;
    DriverCalls calls_;
    std::string fault_;
};

template <class Visit>
void SimulatedSource::resolve_pieces(DeviceAddress address, std::uint64_t bytes,
                                     Visit&& visit) const {
    for (auto at = pieces_.upper_bound(address); bytes != 0 && at != pieces_.begin();) {
        --at;
        const std::uint64_t skip = address - at->first;
        if (skip >= at->second.bytes) return;
        const std::uint64_t part =
            bytes < at->second.bytes - skip ? bytes : at->second.bytes - skip;
        visit(address, part);
        address += part;
        bytes -= part;
        at = pieces_.upper_bound(address);
    }
}

template <class Visit>
void SimulatedSource::resolve(DeviceAddress address, std::uint64_t bytes, Visit&& visit) const {
    const auto alias = aliases_.upper_bound(address);
    if (alias != aliases_.begin()) {
        const auto& [base, known] = *std::prev(alias);
        if (address - base < known.bytes) {
            std::uint64_t skip = address - base;
            for (const PieceRun& run : known.runs) {
                if (skip < run.bytes && bytes != 0) {
                    const std::uint64_t part = bytes < run.bytes - skip ? bytes : run.bytes - skip;
                    resolve_pieces(run.address + skip, part, visit);
                    bytes -= part;
                    skip = 0;
                } else {
                    skip -= skip < run.bytes ? skip : run.bytes;
                }
            }
            return;
        }
    }
    const auto segment = segments_.upper_bound(address);
    if (segment != segments_.begin() &&
        address - std::prev(segment)->first < std::prev(segment)->second) {
        visit(address, bytes);
        return;
    }
    resolve_pieces(address, bytes, visit);
}

} // namespace cachealloc::tools
