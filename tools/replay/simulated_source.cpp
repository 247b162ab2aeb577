#include "tools/replay/simulated_source.h"

#include <algorithm>

namespace cachealloc::tools {

namespace {

constexpr std::uint64_t kGap = kGranule; ///< between allocations: they never touch

bool whole_granules(std::uint64_t bytes) {
    return bytes != 0 && bytes % kGranule == 0;
}

} // namespace

SourceResult SimulatedSource::refuse(const char* rule) {
    if (fault_.empty()) fault_ = rule;
    return {SourceStatus::failed, 0, 0};
}

/// Addresses come again, as a driver's do: the core keeps tables for every address ever seen.
DeviceAddress SimulatedSource::new_address(std::uint64_t bytes) {
    const auto freed = freed_.find(bytes);
    if (freed != freed_.end() && !freed->second.empty()) {
        const DeviceAddress address = freed->second.back();
        freed->second.pop_back();
        return address;
    }
    const DeviceAddress address = next_;
    next_ += bytes + kGap;
    return address;
}

/// A recorded address comes again when the recording says so, in whatever size.
void SimulatedSource::free_address(DeviceAddress address, std::uint64_t bytes) {
    if (address >= kFirstOwn) freed_[bytes].push_back(address);
}

bool SimulatedSource::overlaps_segment(DeviceAddress address, std::uint64_t bytes) const {
    const auto above = segments_.lower_bound(address);
    if (above != segments_.end() && above->first - address < bytes) return true;
    return above != segments_.begin() &&
           address - std::prev(above)->first < std::prev(above)->second;
}

bool SimulatedSource::take(std::uint64_t bytes) {
    if (bytes > limit_ - reserved_) return false;
    reserved_ += bytes;
    peak_ = std::max(peak_, reserved_);
    return true;
}

SourceResult SimulatedSource::allocate(std::uint64_t bytes) {
    ++calls_.allocate;
    ++calls_.single;
    if (!whole_granules(bytes)) return refuse("a segment of no whole number of granules");
    if (!take(bytes)) return {SourceStatus::out_of_memory, 0, 0};
    DeviceAddress address = 0;
    if (recorded_ != nullptr && next_recorded_ < recorded_->size()) {
        const RecordedSegment& next = (*recorded_)[next_recorded_];
        if (next.bytes == bytes && next.address % kGranule == 0 && next.address < kFirstOwn &&
            !overlaps_segment(next.address, bytes)) {
            address = next.address;
            ++next_recorded_;
        } else {
            next_recorded_ = recorded_->size(); // another way from here on
        }
    }
    if (address == 0) address = new_address(bytes);
    segments_.emplace(address, bytes);
    return {SourceStatus::done, address, 0};
}

SourceResult SimulatedSource::release(DeviceAddress address, std::uint64_t bytes) {
    ++calls_.release;
    ++calls_.single;
    const auto segment = segments_.find(address);
    if (segment == segments_.end() || segment->second != bytes)
        return refuse("release() of what allocate() did not give");
    segments_.erase(segment);
    free_address(address, bytes);
    reserved_ -= bytes;
    return {};
}

SourceResult SimulatedSource::reserve(std::uint64_t bytes) {
    ++calls_.single;
    if (!whole_granules(bytes)) return refuse("a range of no whole number of granules");
    const DeviceAddress address = new_address(bytes);
    ranges_.emplace(address, bytes);
    return {SourceStatus::done, address, 0};
}

void SimulatedSource::unreserve(DeviceAddress address, std::uint64_t bytes) {
    ++calls_.single;
    const auto range = ranges_.find(address);
    const auto piece = pieces_.lower_bound(address);
    if (range == ranges_.end() || range->second != bytes ||
        (piece != pieces_.end() && piece->first - address < bytes)) {
        refuse("unreserve() of what is no range, or has memory");
        return;
    }
    ranges_.erase(range);
    free_address(address, bytes);
}

SourceResult SimulatedSource::map(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece) {
    ++calls_.grow;
    if (!whole_granules(piece) || bytes == 0 || bytes % piece != 0)
        return refuse("map() of no whole number of pieces");
    const auto range = ranges_.upper_bound(address);
    if (range == ranges_.begin() ||
        address + bytes > std::prev(range)->first + std::prev(range)->second)
        return refuse("map() outside of reserved addresses");
    const auto above = pieces_.lower_bound(address);
    if ((above != pieces_.end() && above->first < address + bytes) ||
        (above != pieces_.begin() &&
         std::prev(above)->first + std::prev(above)->second.bytes > address))
        return refuse("map() where memory is mapped");
    if (!take(bytes)) return {SourceStatus::out_of_memory, 0, 0};
    const std::uint64_t count = bytes / piece;
    for (std::uint64_t i = 0; i < count; ++i)
        pieces_.emplace(address + i * piece, Piece{piece, 0});
    calls_.pieces += count;
    calls_.single += 2 * count + 1; // create and map each, access once
    return {SourceStatus::done, address, 0};
}

/// Calls change(piece) for the pieces that lie in [address, address + bytes), if they fill it.
template <class Change>
bool SimulatedSource::each_piece(DeviceAddress address, std::uint64_t bytes, Change&& change) {
    const auto first = pieces_.find(address);
    DeviceAddress reached = address;
    auto last = first;
    for (; last != pieces_.end() && last->first == reached && reached < address + bytes; ++last)
        reached += last->second.bytes;
    if (bytes == 0 || reached != address + bytes) return false;
    for (auto at = first; at != last;)
        change(at++);
    return true;
}

SourceResult SimulatedSource::unmap(DeviceAddress address, std::uint64_t bytes) {
    ++calls_.shrink;
    bool aliased = false;
    std::uint64_t count = 0;
    const bool whole = each_piece(address, bytes, [&](auto at) {
        aliased = aliased || at->second.aliases != 0;
        ++count;
    });
    if (!whole) return refuse("unmap() of no whole pieces");
    if (aliased) return refuse("unmap() of a piece that is mapped a second time");
    each_piece(address, bytes, [&](auto at) { pieces_.erase(at); });
    reserved_ -= bytes;
    calls_.single += 2 * count; // unmap and release each
    return {};
}

SourceResult SimulatedSource::alias(const PieceRun* runs, std::uint32_t count) {
    Alias alias;
    std::uint64_t pieces = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!each_piece(runs[i].address, runs[i].bytes, [&](auto) { ++pieces; }))
            return refuse("alias() of no whole pieces");
        alias.bytes += runs[i].bytes;
        alias.runs.push_back(runs[i]);
    }
    if (count == 0) return refuse("alias() of nothing");
    for (const PieceRun& run : alias.runs)
        each_piece(run.address, run.bytes, [](auto at) { ++at->second.aliases; });
    calls_.remaps += count;
    calls_.piece_maps += pieces;
    calls_.single += pieces + 2; // addresses, a map each, access once
    const DeviceAddress address = new_address(alias.bytes);
    aliases_.emplace(address, std::move(alias));
    return {SourceStatus::done, address, 0};
}

SourceResult SimulatedSource::drop_alias(DeviceAddress address, std::uint64_t bytes) {
    ++calls_.drop;
    const auto alias = aliases_.find(address);
    if (alias == aliases_.end() || alias->second.bytes != bytes)
        return refuse("drop_alias() of what alias() did not give");
    std::uint64_t pieces = 0;
    for (const PieceRun& run : alias->second.runs) {
        each_piece(run.address, run.bytes, [&](auto at) {
            --at->second.aliases;
            ++pieces;
        });
    }
    calls_.single += pieces + 1;
    aliases_.erase(alias);
    free_address(address, bytes);
    return {};
}

} // namespace cachealloc::tools
