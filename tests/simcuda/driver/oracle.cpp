#include "oracle.h"

#include <algorithm>

namespace simcuda {

void join(Clock& into, const Clock& other) {
    if (into.size() < other.size()) {
        into.resize(other.size());
    }
    for (std::size_t i = 0; i < other.size(); ++i) {
        into[i] = std::max(into[i], other[i]);
    }
}

namespace {

bool known(const Stamp& stamp, const Clock& clock) {
    return stamp.slot < clock.size() && stamp.epoch <= clock[stamp.slot];
}

} // namespace

// Makes `at` a boundary between cells and returns the first cell at or behind it.
Oracle::Cells::iterator Oracle::split(std::uintptr_t at) {
    auto it = cells_.lower_bound(at);
    if (it == cells_.begin()) {
        return it;
    }
    auto before = std::prev(it);
    if (before->second.end <= at) {
        return it;
    }
    Cell tail = before->second;
    before->second.end = at;
    return cells_.emplace_hint(it, at, std::move(tail));
}

std::vector<Race> Oracle::access(std::uintptr_t begin, std::uintptr_t end, bool write,
                                 const Stamp& stamp, const Clock& clock) {
    std::vector<Race> races;
    if (begin >= end) {
        return races;
    }
    split(end);
    auto it = split(begin);
    const auto conflict = [&](const Stamp& earlier, bool earlier_writes, std::uintptr_t from,
                              std::uintptr_t to) {
        if (earlier.op == stamp.op || known(earlier, clock) ||
            !reported_.emplace(earlier.op, stamp.op).second) {
            return;
        }
        races.push_back(Race{from, to, earlier, stamp, earlier_writes, write});
    };
    std::uintptr_t at = begin;
    while (at < end) {
        if (it == cells_.end() || it->first > at) {
            // A gap without history.
            const std::uintptr_t stop =
                it == cells_.end() ? end : std::min<std::uintptr_t>(end, it->first);
            Cell fresh;
            fresh.end = stop;
            it = cells_.emplace_hint(it, at, std::move(fresh));
        }
        Cell& cell = it->second;
        if (cell.written) {
            conflict(cell.write, true, it->first, cell.end);
        }
        if (write) {
            for (const Stamp& read : cell.reads) {
                conflict(read, false, it->first, cell.end);
            }
        } else {
            auto same = std::find_if(cell.reads.begin(), cell.reads.end(),
                                     [&](const Stamp& r) { return r.slot == stamp.slot; });
            if (same == cell.reads.end()) {
                cell.reads.push_back(stamp);
            } else {
                *same = stamp;
            }
        }
        at = cell.end;
        ++it;
    }
    if (write) {
        // One cell for the whole range: what it overwrites no longer matters, since whoever is
        // ordered behind this write is ordered behind everything this write was ordered behind.
        cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
        Cell cell;
        cell.end = end;
        cell.written = true;
        cell.write = stamp;
        cells_.emplace(begin, std::move(cell));
    }
    return races;
}

void Oracle::forget(std::uintptr_t begin, std::uintptr_t end) {
    split(end);
    const auto first = split(begin);
    cells_.erase(first, cells_.lower_bound(end));
}

} // namespace simcuda
