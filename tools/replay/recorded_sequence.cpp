#include "tools/replay/recorded_sequence.h"

#include "tools/analysis/history.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

using trace::EventKind;
using trace::MemoryType;

/// Builds the sequence of one pool.
class PoolSequence {
  public:
    void allocate(const Block& block) {
        if (block.size == 0 || sequence_.ids == std::numeric_limits<std::uint32_t>::max()) return;
        const bool by_stream = (block.flags & trace::kStreamOrdered) != 0;
        // An address that comes again was reused, whether its completion was seen or not.
        pending_.erase({block.address, 0});
        live_.insert(
            {block.address, 0},
            sequence_.allocate(block.size, by_stream ? stream(block.stream) : 0, by_stream));
        threads_.insert(block.thread);
        device_ = block.device;
    }

    void release(const Event& event) {
        const Place place{event.address, 0};
        const std::uint32_t* const id = live_.find(place);
        if (id == nullptr) return;
        const bool settled = event.has(trace::kSettled);
        const bool by_stream = event.has(trace::kStreamOrdered);
        sequence_.release(*id, by_stream ? stream(event.stream) : 0, settled, by_stream);
        if (!settled) pending_.insert(place, {*id, by_stream});
        live_.erase(place);
        threads_.insert(event.thread);
    }

    void complete(const Event& event) {
        const Place place{event.address, 0};
        const Pending* const pending = pending_.find(place);
        if (pending == nullptr) return;
        sequence_.complete(pending->id, pending->by_stream);
        pending_.erase(place);
    }

    void add_segment(std::uint64_t address, std::uint64_t bytes, bool growable) {
        if (!growable) segments_.push_back({address, bytes});
        if (!held_.insert({address, bytes}).second) return;
        reserved_ += bytes;
        peak_reserved_ = std::max(peak_reserved_, reserved_);
    }

    void end_segment(std::uint64_t address) {
        const auto found = held_.find(address);
        if (found == held_.end()) return;
        reserved_ -= found->second;
        held_.erase(found);
    }

    [[nodiscard]] std::uint8_t device() const { return device_; }
    [[nodiscard]] std::uint64_t peak() const { return sequence_.peak_requested; }

    AllocationSequence finish(RecordedRun run) {
        run.peak_reserved = peak_reserved_;
        run.peak_requested = sequence_.peak_requested;
        run.device = device_;
        run.segments = std::move(segments_);
        sequence_.streams = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(streams_.size()));
        sequence_.threads = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(threads_.size()));
        sequence_.recorded = std::move(run);
        return std::move(sequence_);
    }

  private:
    struct Pending {
        std::uint32_t id = 0;
        bool by_stream = false;
    };

    std::uint32_t stream(std::uint64_t handle) {
        return streams_.try_emplace(handle, static_cast<std::uint32_t>(streams_.size()))
            .first->second;
    }

    AllocationSequence sequence_;
    FlatMap<std::uint32_t> live_; ///< ids by address
    FlatMap<Pending> pending_;    ///< by address
    std::map<std::uint64_t, std::uint32_t> streams_;
    std::set<std::uint32_t> threads_;
    std::map<std::uint64_t, std::uint64_t> held_; ///< segments by address
    std::vector<RecordedSegment> segments_;
    std::uint64_t reserved_ = 0;
    std::uint64_t peak_reserved_ = 0;
    std::uint8_t device_ = 0;
};

class Collector : public HistoryVisitor {
  public:
    void on_start(const State& state) override {
        for (const auto& [address, segment] : state.segments())
            if (!segment.second)
                pools_[segment.pool].add_segment(address, segment.size, segment.expandable);
        std::vector<Block> blocks;
        state.live().for_each([&](const Place&, const Block& block) {
            if (block.memory == MemoryType::pooled) blocks.push_back(block);
        });
        std::ranges::sort(blocks, [](const Block& a, const Block& b) {
            return std::tie(a.since, a.address) < std::tie(b.since, b.address);
        });
        for (const Block& block : blocks)
            pools_[block.pool].allocate(block);
    }

    void on_event(const Event& event, const State&, const Block* ended) override {
        if (event.memory != MemoryType::pooled) return;
        const bool second_mapping =
            (event.kind == EventKind::segment_map || event.kind == EventKind::segment_unmap) &&
            event.has(trace::kSecond);
        if (second_mapping) return; // takes up no memory
        PoolSequence& pool = pools_[ended != nullptr ? ended->pool : event.pool];
        switch (event.kind) {
        case EventKind::alloc:
            pool.allocate(block_of(event));
            break;
        case EventKind::free:
            pool.release(event);
            break;
        case EventKind::free_completed:
            pool.complete(event);
            break;
        case EventKind::segment_alloc:
        case EventKind::segment_map:
            pool.add_segment(event.address, event.size, event.kind == EventKind::segment_map);
            break;
        case EventKind::segment_free:
        case EventKind::segment_unmap:
            pool.end_segment(event.address);
            break;
        default:
            break;
        }
    }

    std::map<std::uint8_t, PoolSequence> pools_;
};

} // namespace

AllocationSequence read_recording(const std::string& path, int pool,
                                  std::function<void(double)> progress) {
    const Trace trace(path);
    History history(trace, std::move(progress));
    Collector collector;
    history.visit(collector);
    auto& pools = collector.pools_;
    std::erase_if(pools, [](const auto& one) { return one.second.peak() == 0; });
    const auto chosen = pool >= 0 ? pools.find(static_cast<std::uint8_t>(pool))
                                  : std::ranges::max_element(pools, {}, [](const auto& one) {
                                        return one.second.peak();
                                    });
    if (chosen == pools.end()) {
        std::string numbers;
        for (const auto& [number, sequence] : pools)
            numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", number);
        throw TraceError(pools.empty()
                             ? fmt::format("{}: no pool handed out memory in this recording", path)
                             : fmt::format("{}: pool {} handed out nothing; --pool may be {}", path,
                                           pool, numbers));
    }
    RecordedRun run;
    run.options = std::string(trace.settings["options"]);
    run.pool = chosen->first;
    run.pools = static_cast<std::uint32_t>(pools.size());
    if (const Device* const device = trace.devices.find(chosen->second.device()))
        run.device_bytes = device->total;
    const HistoryCounts& counts = history.counts();
    run.whole = history.whole() && counts.lost_frees == 0 && counts.inserted_allocs == 0 &&
                counts.implied_frees == 0 && trace.header().counters.lost == 0;
    const std::uint64_t settled = trace.statistics["frees"] - trace.statistics["async_frees"];
    run.host_waited = 2 * trace.statistics["native_waits"] > settled;
    if (trace.statistics.has("level"))
        run.level =
            static_cast<std::uint8_t>(std::min<std::uint64_t>(trace.statistics["level"], 3));
    run.exported = trace.statistics["ipc_exports"] != 0;
    return chosen->second.finish(std::move(run));
}

} // namespace cachealloc::tools
