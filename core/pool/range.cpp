#include "core/pool/range.h"

#include "core/pool/host_pages.h"

namespace cachealloc {

Range::~Range() {
    unmap_host_pages(granules_, bytes_ / kGranule * sizeof(Granule));
}

bool Range::begin(DeviceAddress base, std::uint64_t bytes) {
    granules_ = static_cast<Granule*>(map_host_pages(bytes / kGranule * sizeof(Granule)));
    if (granules_ == nullptr) return false;
    base_ = base;
    bytes_ = bytes;
    return true;
}

void Range::note_mapped(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece) {
    for (std::uint64_t done = 0; done < bytes; done += kGranule)
        at(address + done) = {true, done % piece == 0, 0};
}

void Range::note_unmapped(DeviceAddress address, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes; done += kGranule)
        at(address + done) = {};
}

void Range::note_aliased(PieceRun run) {
    for (DeviceAddress i = run.address; i < run.end(); i += kGranule)
        ++at(i).aliases;
}

void Range::note_alias_gone(PieceRun run) {
    for (DeviceAddress i = run.address; i < run.end(); i += kGranule)
        --at(i).aliases;
}

PieceRun Range::whole_pieces(DeviceAddress address, std::uint64_t bytes) const {
    DeviceAddress first = (address + kGranule - 1) / kGranule * kGranule;
    DeviceAddress last = (address + bytes) / kGranule * kGranule;
    while (first < last && !boundary(first))
        first += kGranule;
    while (first < last && !boundary(last))
        last -= kGranule;
    return first < last ? PieceRun{first, last - first} : PieceRun{};
}

PieceRun Range::pieces_for(DeviceAddress from, std::uint64_t bytes) const {
    DeviceAddress end = from + (bytes + kGranule - 1) / kGranule * kGranule;
    while (!boundary(end))
        end += kGranule;
    return {from, end - from};
}

/// A stitch maps whole pieces, so the granules of a piece agree.
PieceRun Range::unaliased(PieceRun run) const {
    DeviceAddress first = run.address;
    while (first < run.end() && at(first).aliases != 0)
        first += kGranule;
    DeviceAddress last = first;
    while (last < run.end() && at(last).aliases == 0)
        last += kGranule;
    return {first, last - first};
}

} // namespace cachealloc
