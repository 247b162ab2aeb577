#include "tools/trace/event_stream.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

namespace cachealloc::tools {

namespace {

constexpr std::size_t kWindowChunks = 256; // 1 MiB a read: few system calls, little memory

} // namespace

EventStream::EventStream(const TraceFile& file) : file_(file) {
    const TraceSection& section = file.section(trace::SectionType::events);
    const auto window = std::make_unique<trace::Chunk[]>(kWindowChunks);
    const std::uint64_t end = section.offset + section.bytes;
    for (std::uint64_t at = section.offset; at < end;) {
        const std::size_t wanted =
            std::min<std::uint64_t>(end - at, kWindowChunks * trace::kChunkBytes);
        const std::size_t chunks = file.read(at, window.get(), wanted) / trace::kChunkBytes;
        if (chunks == 0) break; // cut while we read
        for (std::size_t i = 0; i < chunks; ++i)
            take(window[i], at + i * trace::kChunkBytes);
        at += chunks * trace::kChunkBytes;
    }
    drop_duplicates();
    find_complete();
    std::ranges::sort(runs_, {},
                      [](const Run& run) { return std::tie(run.first_time, run.claim); });
}

void EventStream::take(const trace::Chunk& chunk, std::uint64_t offset) {
    const std::uint64_t claim = chunk.header.claim.load(std::memory_order_relaxed);
    if (claim == 0) {
        ++counts_.unused_chunks;
        return;
    }
    ++counts_.chunks;
    if (counts_.first_claim == 0 || claim < counts_.first_claim) counts_.first_claim = claim;
    Run run{.first_time = 0, .claim = claim, .valid = 0, .offset = offset};
    std::uint64_t empty = 0; // since the last record; at the end they are just not used yet
    std::uint64_t last_time = 0;
    Event event;
    for (std::uint32_t i = 0; i < trace::kChunkRecords; ++i) {
        switch (decode(chunk.records[i], trace::event_sequence(claim, i), event)) {
        case RecordState::valid:
            if (run.valid == 0) run.first_time = event.time;
            last_time = std::max(last_time, event.time);
            run.valid |= std::uint64_t{1} << i;
            counts_.torn += std::exchange(empty, 0);
            break;
        case RecordState::empty:
            ++empty;
            break;
        case RecordState::older:
            ++counts_.older;
            break;
        case RecordState::torn:
            ++counts_.torn;
            break;
        case RecordState::unknown:
            ++counts_.unknown;
            break;
        }
    }
    if (run.valid == 0) return;
    const bool first = counts_.valid == 0;
    counts_.valid += static_cast<std::uint64_t>(std::popcount(run.valid));
    counts_.first_time = first ? run.first_time : std::min(counts_.first_time, run.first_time);
    counts_.last_time = std::max(counts_.last_time, last_time);
    runs_.push_back(run);
}

void EventStream::drop_duplicates() {
    // The recorder never gives a claim twice: a second chunk with it was copied there.
    std::ranges::sort(runs_, {}, [](const Run& run) { return std::tie(run.claim, run.offset); });
    std::vector<Run> kept;
    kept.reserve(runs_.size());
    for (const Run& run : runs_) {
        if (kept.empty() || kept.back().claim != run.claim) {
            kept.push_back(run);
            continue;
        }
        const auto records = static_cast<std::uint64_t>(std::popcount(run.valid));
        counts_.foreign += records;
        counts_.valid -= records;
    }
    runs_.swap(kept);
}

void EventStream::find_complete() {
    // Called while the runs are in the order of their claims.
    counts_.complete_since = counts_.first_time;
    if (runs_.empty()) return;
    const std::uint64_t ring = counts_.chunks + counts_.unused_chunks;
    const std::uint64_t latest = runs_.back().claim;
    const std::uint64_t oldest = latest > ring ? latest - ring : 0; // claims up to here went round
    bool first = true;
    for (const Run& run : runs_) {
        if (run.claim <= oldest) continue;
        counts_.complete_since =
            first ? run.first_time : std::min(counts_.complete_since, run.first_time);
        first = false;
    }
}

/// A chunk that the merge is in: a copy, and the place in it.
struct EventCursor::Open {
    trace::Chunk chunk;
    Run run;
    Event event;
    std::uint64_t time; ///< of `event`; never less than that of the one before

    [[nodiscard]] bool before(const Open& other) const {
        return std::tie(time, event.sequence) < std::tie(other.time, other.event.sequence);
    }

    /// Goes to the next record that is still what it was; counts the others.
    bool advance(std::uint64_t& vanished) {
        while (run.valid != 0) {
            const auto index = static_cast<std::uint32_t>(std::countr_zero(run.valid));
            run.valid &= run.valid - 1;
            const std::uint64_t sequence = trace::event_sequence(run.claim, index);
            if (decode(chunk.records[index], sequence, event) == RecordState::valid) {
                time = std::max(time, event.time);
                return true;
            }
            ++vanished;
        }
        return false;
    }
};

EventCursor::EventCursor(const EventStream& stream) : stream_(stream) {}
EventCursor::~EventCursor() = default;

void EventCursor::open(const Run& run) {
    std::unique_ptr<Open> lane;
    if (idle_.empty()) {
        lane = std::make_unique<Open>();
    } else {
        lane = std::move(idle_.back());
        idle_.pop_back();
    }
    lane->run = run;
    lane->time = 0;
    const std::size_t got = stream_.file_.read(run.offset, &lane->chunk, sizeof(lane->chunk));
    if (got != sizeof(lane->chunk)) {
        vanished_ += static_cast<std::uint64_t>(std::popcount(run.valid));
        lane->run.valid = 0;
    }
    if (lane->advance(vanished_)) {
        heap_.push_back(std::move(lane));
        sift_up(heap_.size() - 1);
    } else {
        idle_.push_back(std::move(lane));
    }
}

bool EventCursor::next(Event& event) {
    while (next_run_ < stream_.runs_.size() &&
           (heap_.empty() || stream_.runs_[next_run_].first_time <= heap_[0]->time))
        open(stream_.runs_[next_run_++]);
    if (heap_.empty()) return false;
    Open& top = *heap_[0];
    event = top.event;
    event.time = top.time;
    ++position_;
    if (!top.advance(vanished_)) {
        idle_.push_back(std::move(heap_[0]));
        if (heap_.size() > 1) heap_[0] = std::move(heap_.back());
        heap_.pop_back();
    }
    if (!heap_.empty()) sift_down(0);
    return true;
}

void EventCursor::sift_up(std::size_t at) {
    while (at > 0 && heap_[at]->before(*heap_[(at - 1) / 2])) {
        std::swap(heap_[at], heap_[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

void EventCursor::sift_down(std::size_t at) {
    for (;;) {
        std::size_t least = at;
        for (std::size_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap_.size(); ++child) {
            if (heap_[child]->before(*heap_[least])) least = child;
        }
        if (least == at) return;
        std::swap(heap_[at], heap_[least]);
        at = least;
    }
}

} // namespace cachealloc::tools
