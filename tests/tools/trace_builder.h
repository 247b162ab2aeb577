// Writes recordings as the recorder would, by simple calls: for tests, golden files, the fuzzer's
// corpus and benchmarks.
//
// Times are nanoseconds; each event comes `step` after the one before unless at() says otherwise.
// The builder keeps the live table, the per-stack totals and the device counters as the recorder
// does. What it wrote can be spoilt afterwards through bytes().
#pragma once

#include "core/record/trace_format.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cachealloc::tests {

/// What an event may say beyond address and size; the defaults are those of a plain cudaMalloc.
struct EventDetails {
    std::uint32_t stack = 0;
    std::uint32_t thread = 1;
    std::uint64_t stream = 0;
    trace::MemoryType memory = trace::MemoryType::pooled;
    std::uint8_t device = 0;
    std::uint8_t flags = 0;
    std::uint8_t pool = 0;
    std::uint32_t extra = 0;
    std::uint32_t free_stack = 0;
    trace::CallName call = trace::CallName::none;
};

class TraceBuilder {
  public:
    static constexpr std::uint64_t kStart = 1'000'000'000;
    static constexpr std::uint64_t kEpoch = 1'700'000'000'000'000'000; ///< at kStart

    TraceBuilder();

    /// The history keeps so many chunks and then overwrites the oldest; before the first event.
    void ring_chunks(std::size_t chunks) { ring_chunks_ = chunks; }
    /// The header that will be written: state, seen, pid, counters and so on may be set. Section
    /// table, `latest` and what the builder counts itself are filled in later.
    trace::Header& header() { return *header_; }
    /// Time of the next event, and how much later each one after it is.
    void at(std::uint64_t time) { now_ = time; }
    void step(std::uint64_t step) { step_ = step; }
    [[nodiscard]] std::uint64_t now() const { return now_; }

    void module(std::string_view path, std::uint64_t bias, std::uint64_t start, std::uint64_t end,
                std::string_view build_id = {}, std::uint32_t flags = 0);
    void unload(std::uint64_t start);
    /// Return addresses, innermost first; gives the stack's number. Each call makes a new one.
    std::uint32_t stack(const std::vector<trace::Frame>& frames, bool cut = false);
    std::uint32_t thread(std::string_view name, std::uint32_t os_id);
    void device(std::uint32_t ordinal, std::string_view name, std::uint64_t total);
    void statistic(std::string_view name, std::uint64_t value);
    void setting(std::string_view name, std::string_view value);

    void alloc(std::uint64_t address, std::uint64_t size, const EventDetails& details = {});
    /// `details.memory` finds the address space; size, extra and stack are the allocation's, as
    /// far as it is known. Settled unless `details.flags` lacks kSettled and `pending` is set.
    void free(std::uint64_t address, const EventDetails& details = {}, bool pending = false);
    void free_completed(std::uint64_t address, std::uint64_t size,
                        const EventDetails& details = {});
    void segment_alloc(std::uint64_t address, std::uint64_t size, bool large = true,
                       const EventDetails& details = {});
    void segment_free(std::uint64_t address, const EventDetails& details = {});
    /// The request that failed is counted in Header::seen.
    void out_of_memory(std::uint64_t size, std::uint64_t free_bytes,
                       const EventDetails& details = {});
    /// Any event as it is. segment_map and segment_unmap enter the live table and leave it.
    void event(trace::EventKind kind, std::uint64_t address, std::uint64_t size,
               const EventDetails& details = {});
    /// The events from here to unlose() are only counted as lost; the live table sees them.
    void lose() { losing_ = true; }
    void unlose() { losing_ = false; }

    /// The whole file.
    [[nodiscard]] std::vector<std::byte> bytes();
    /// Writes it there; false on an error, errno then says which.
    bool write(const std::string& path);

  private:
    using Key = std::pair<trace::AddressSpace, std::uint64_t>;

    bool claim_chunk(std::uint32_t thread);
    trace::EventRecord& place_for(std::uint32_t thread, std::uint64_t& sequence);
    trace::EventRecord& add(trace::EventKind kind, std::uint64_t address, std::uint64_t size,
                            const EventDetails& details);
    void keep(const Key& key, const trace::EventRecord& record);
    void count(const trace::EventRecord& record, std::int64_t sign);
    trace::DeviceCounters& counters_of(std::uint32_t ordinal);
    template <class Out>
    void emit(Out&& out);

    std::unique_ptr<trace::Header> header_;
    std::uint64_t now_ = kStart + 1000;
    std::uint64_t step_ = 1000;
    std::size_t ring_chunks_ = ~std::size_t{0};
    bool losing_ = false;

    std::deque<trace::Chunk> chunks_;
    struct Writing {
        std::size_t chunk;
        std::uint32_t used;
    };
    std::map<std::uint32_t, Writing> writing_; ///< by thread
    std::uint64_t claims_ = 0;
    trace::EventRecord lost_{};
    std::map<Key, trace::EventRecord> live_;
    std::deque<trace::StackSlot> stacks_;
    std::vector<trace::Frame> frames_;
    std::vector<trace::ModuleRecord> modules_;
    std::deque<trace::ThreadRecord> threads_;
    std::deque<trace::DeviceCounters> devices_;
    std::deque<trace::StatisticRecord> statistics_;
    std::string settings_;
};

} // namespace cachealloc::tests
