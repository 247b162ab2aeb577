#pragma once

#include "core/order/stream_events.h"
#include "core/pool/memory_source.h"

#include "simulated_mappings.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

/// A device with streams of pending work, events and memory, and the oracle of the pool's tests: it
/// notes which work touches which bytes and complains when a block is handed out while earlier work
/// on it may still be going on.
///
/// Order is kept as one counter a stream: work number n of a stream has finished when
/// finished[stream] >= n. Work is *known* finished when an event that covers it was asked and said
/// so, *ordered* when all later work waits for it. What merely happens to be over does not count,
/// so a violation is seen whatever the timing was. Thread-safe.
class SimulatedDevice : public cachealloc::StreamOrder, public cachealloc::MemorySource {
  public:
    static constexpr std::size_t kStreams = 4;
    using Clock = std::array<std::uint64_t, kStreams>;
    using Address = cachealloc::DeviceAddress;
    using OrderResult = cachealloc::OrderResult;
    using OrderStatus = cachealloc::OrderStatus;
    using SourceResult = cachealloc::SourceResult;
    using SourceStatus = cachealloc::SourceStatus;

    SimulatedDevice(std::uint64_t memory_bytes, std::uint64_t seed)
        : random_(seed), memory_(memory_bytes) {}

    // ---- what the program does
    /// Queues work on `stream` that touches the bytes.
    void submit(std::size_t stream, Address address, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        Clock after = join(streams_[stream], join(barrier_, known_));
        after[stream] = ++submitted_[stream];
        streams_[stream] = after;
        work_[stream].push_back(after);
        for (const Span& span : spans(address, bytes))
            uses_.push_back({span.address, span.bytes, stream, submitted_[stream], false});
        if (!mappings_.used()) return;
        std::erase_if(unfinished_,
                      [&](const Use& use) { return use.number <= known_[use.stream]; });
        unfinished_.push_back({address, bytes, stream, submitted_[stream], false});
        for (const Span& span : spans(address, bytes))
            unfinished_.push_back({span.address, span.bytes, stream, submitted_[stream], false});
    }
    /// Says that the pool handed out these bytes. `only_finished`: a barrier is not enough.
    void handed_out(Address address, std::uint64_t bytes, bool only_finished) {
        const std::lock_guard lock(mutex_);
        for (const Span& span : spans(address, bytes))
            handed_out_span(span.address, span.bytes, only_finished);
    }
    /// The same for work on `stream` and behind it: what other streams did must be ordered before
    /// that stream's next work. It stays on record, since nothing else is ordered behind it.
    void handed_out_to(std::size_t stream, Address address, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        const Clock before = join(streams_[stream], join(barrier_, known_));
        for (const Span& span : spans(address, bytes)) {
            note_live(span.address, span.bytes);
            for (const Use& use : uses_) {
                if (overlap(use, span.address, span.bytes) && !one_stream_ &&
                    use.number > before[use.stream]) {
                    complain("handed to a stream while earlier work is pending");
                }
            }
        }
    }
    /// Says, before the free, that the program is through with these bytes.
    void given_up(Address address, std::uint64_t bytes, bool only_finished) {
        const std::lock_guard lock(mutex_);
        for (const Span& span : spans(address, bytes))
            given_up_span(span.address, span.bytes, only_finished);
    }
    /// The free failed: still the program's.
    void kept(Address address, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        for (const Span& span : spans(address, bytes))
            live_[span.address] = span.bytes;
    }

    // ---- what the device does
    /// Finishes at most `count` pieces of work, on streams chosen at random.
    void advance(int count) {
        const std::lock_guard lock(mutex_);
        advance_locked(count);
    }
    void finish_all() {
        const std::lock_guard lock(mutex_);
        finished_ = submitted_;
    }
    bool idle() {
        const std::lock_guard lock(mutex_);
        return finished_ == submitted_;
    }

    // ---- StreamOrder
    OrderResult record(std::uint32_t event) override {
        const std::lock_guard lock(mutex_);
        if (const OrderResult bad = order_failure(); !bad.done()) return bad;
        if (capture_open) return {OrderStatus::refused, 0};
        events_[event] = submitted_;
        ++records; // those that took effect
        return {};
    }
    OrderResult query(std::uint32_t event) override {
        const std::lock_guard lock(mutex_);
        ++queries;
        if (const OrderResult bad = order_failure(); !bad.done()) {
            return bad.status == OrderStatus::refused ? OrderResult{OrderStatus::failed, 1} : bad;
        }
        if (!covers(finished_, events_[event])) return {OrderStatus::pending, 0};
        known_ = join(known_, events_[event]);
        return {};
    }
    OrderResult wait_on_device(std::uint32_t event) override {
        const std::lock_guard lock(mutex_);
        ++waits;
        if (const OrderResult bad = order_failure(); !bad.done()) return bad;
        if (capture_open) return {OrderStatus::refused, 0};
        barrier_ = join(barrier_, events_[event]);
        return {};
    }
    /// Streams by their number plus one.
    OrderResult record_on(cachealloc::StreamHandle stream, std::uint32_t event) override {
        const std::lock_guard lock(mutex_);
        if (const OrderResult bad = order_failure(); !bad.done()) return bad;
        if (capture_open) return {OrderStatus::refused, 0};
        events_[event] = join(streams_[stream - 1], barrier_);
        ++stream_records;
        return {};
    }
    OrderResult wait_on_stream(cachealloc::StreamHandle stream, std::uint32_t event) override {
        const std::lock_guard lock(mutex_);
        ++stream_waits;
        if (const OrderResult bad = order_failure(); !bad.done()) return bad;
        if (capture_open) return {OrderStatus::refused, 0};
        streams_[stream - 1] = join(streams_[stream - 1], events_[event]);
        return {};
    }
    OrderResult synchronize() override {
        const std::lock_guard lock(mutex_);
        ++synchronizations;
        if (const OrderResult bad = order_failure(); !bad.done()) return bad;
        if (capture_open) return {OrderStatus::refused, 0};
        finished_ = known_ = submitted_;
        return {};
    }
    void pause() override {
        ++pauses;
        if (const auto hook = on_pause) hook(); // a copy: a hook may take itself out
        advance(1);
    }
    bool several_streams() const override { return several; }

    // ---- MemorySource
    SourceResult allocate(std::uint64_t bytes) override {
        const std::lock_guard lock(mutex_);
        ++allocations;
        if (bytes == 0 || bytes % cachealloc::kGranule != 0) complain("odd segment size");
        if (fails_now()) return {source_failure, 0, 2};
        if (held_ + bytes > memory_) {
            ++refusals;
            return {SourceStatus::out_of_memory, 0, 2};
        }
        Address at = kBase; // the lowest gap: addresses come back as soon as they can
        for (const auto& [base, size] : segments_) {
            if (base - at >= bytes) break;
            at = base + size;
        }
        segments_[at] = bytes;
        held_ += bytes;
        held_peak_ = std::max(held_peak_, held_);
        return {SourceStatus::done, at, 0};
    }
    SourceResult release(Address address, std::uint64_t bytes) override {
        if (before_release) before_release();
        const SourceResult result = release_now(address, bytes);
        std::this_thread::yield(); // time enough for another thread to get the same address
        return result;
    }
    std::uint64_t total_bytes() const override { return memory_; }
    std::uint64_t process_bytes() override {
        ++process_asked;
        return elsewhere == 0 ? 0 : held() + elsewhere;
    }

    SourceResult reserve(std::uint64_t bytes) override {
        const std::lock_guard lock(mutex_);
        if (!growable) return {SourceStatus::failed, 0, 3};
        if (fails_now()) return {source_failure, 0, 2};
        return {SourceStatus::done, mappings_.reserve(bytes), 0};
    }
    void unreserve(Address, std::uint64_t) override {}
    SourceResult map(Address address, std::uint64_t bytes, std::uint64_t piece) override {
        const std::lock_guard lock(mutex_);
        ++maps;
        if (fails_now()) return {source_failure, 0, 2};
        if (held_ + bytes > memory_) {
            ++refusals;
            return {SourceStatus::out_of_memory, 0, 2};
        }
        complain_if(mappings_.map(address, bytes, piece));
        held_ += bytes;
        held_peak_ = std::max(held_peak_, held_);
        return {};
    }
    SourceResult unmap(Address address, std::uint64_t bytes) override {
        const std::lock_guard lock(mutex_);
        ++unmaps;
        complain_if(mappings_.may_unmap(address, bytes));
        for (const Span& span : spans(address, bytes)) {
            if (is_live(span.address, span.bytes)) complain("unmapped under a live block");
            check_finished(span, "unmapped under unfinished work");
        }
        if (fails_now()) return {SourceStatus::failed, 0, 1};
        mappings_.unmap(address, bytes);
        held_ -= bytes;
        return {};
    }
    SourceResult alias(const cachealloc::PieceRun* runs, std::uint32_t count) override {
        const std::lock_guard lock(mutex_);
        ++aliased;
        complain_if(mappings_.may_alias(runs, count));
        if (fails_now()) return {source_failure, 0, 2};
        return {SourceStatus::done, mappings_.alias(runs, count), 0};
    }
    SourceResult drop_alias(Address address, std::uint64_t bytes) override {
        const std::lock_guard lock(mutex_);
        complain_if(mappings_.may_drop(address, bytes));
        check_finished({address, bytes}, "alias ended under unfinished work");
        if (fails_now()) return {SourceStatus::failed, 0, 1};
        mappings_.drop(address, bytes);
        return {};
    }

    // ---- what a test sets and reads
    std::atomic<bool> several{false}; ///< the hint
    std::atomic<bool> capture_open{false};
    std::size_t stuck_stream = kStreams;    ///< makes no progress until finish_all()
    bool release_waits = true;              ///< giving memory back waits for all work
    std::function<void()> before_release;   ///< called before memory is given back
    std::atomic<std::uint64_t> refusals{0}; ///< allocations that found no room
    bool one_stream_ = false;               ///< the program uses one stream: all work is ordered
    std::uint64_t elsewhere = 0;            ///< held by the process, not by the pool; 0: not known
    std::atomic<std::uint64_t> process_asked{0};
    std::uint64_t fail_at = 0; ///< the call (from 1, counted over all) that fails, 0 = none
    std::uint64_t calls = 0;
    OrderStatus order_failure_status = OrderStatus::failed;
    SourceStatus source_failure = SourceStatus::failed;
    std::atomic<std::uint64_t> records{0}, queries{0}, waits{0}, synchronizations{0}, pauses{0};
    std::atomic<std::uint64_t> stream_records{0}, stream_waits{0};
    std::atomic<std::uint64_t> allocations{0}, releases{0};
    std::atomic<std::uint64_t> maps{0}, unmaps{0}, aliased{0};
    bool growable = true; ///< addresses can be reserved
    std::vector<Address> released;
    std::function<void()> on_pause; ///< runs in each pause: another thread's steps

    std::vector<std::string> complaints() {
        const std::lock_guard lock(mutex_);
        return complaints_;
    }
    std::uint64_t held() {
        const std::lock_guard lock(mutex_);
        return held_;
    }
    std::uint64_t held_peak() {
        const std::lock_guard lock(mutex_);
        return held_peak_;
    }
    std::size_t aliases() {
        const std::lock_guard lock(mutex_);
        return mappings_.aliases();
    }
    std::size_t segments() {
        const std::lock_guard lock(mutex_);
        return segments_.size();
    }

  private:
    static constexpr Address kBase = 0x7d0000000000;
    using Span = SimulatedMappings::Span;

    struct Use {
        Address address;
        std::uint64_t bytes;
        std::size_t stream;
        std::uint64_t number;
        bool only_finished; ///< freed by a call that natively does not wait
    };

    std::vector<Span> spans(Address address, std::uint64_t bytes) const {
        return mappings_.spans(address, bytes);
    }
    void check_finished(const Span& span, const char* complaint) {
        for (const Use& use : unfinished_) {
            if (overlap(use, span.address, span.bytes) && use.number > known_[use.stream])
                complain(complaint);
        }
    }
    void handed_out_span(Address address, std::uint64_t bytes, bool only_finished) {
        note_live(address, bytes);
        for (const Use& use : uses_) {
            if (!overlap(use, address, bytes)) continue;
            const bool known = use.number <= known_[use.stream];
            const bool ordered = one_stream_ || use.number <= barrier_[use.stream];
            if (!known && (only_finished || (use.only_finished && !one_stream_) || !ordered)) {
                complain("handed out while earlier work is pending");
            }
        }
        std::erase_if(uses_, [&](const Use& use) {
            return use.number <= known_[use.stream] || overlap(use, address, bytes);
        });
    }
    void given_up_span(Address address, std::uint64_t bytes, bool only_finished) {
        live_.erase(address);
        if (!only_finished) return;
        std::vector<Use> rest; // of uses of what was a larger block once
        for (Use& use : uses_) {
            if (!overlap(use, address, bytes) || use.only_finished) continue;
            const Address end = use.address + use.bytes;
            if (use.address < address) {
                rest.push_back(use);
                rest.back().bytes = address - use.address;
            }
            if (end > address + bytes) {
                rest.push_back(use);
                rest.back().address = address + bytes;
                rest.back().bytes = end - address - bytes;
            }
            use.address = std::max(use.address, address);
            use.bytes = std::min(end, address + bytes) - use.address;
            use.only_finished = true;
        }
        uses_.insert(uses_.end(), rest.begin(), rest.end());
    }
    static bool overlap(const Use& use, Address address, std::uint64_t bytes) {
        return use.address < address + bytes && address < use.address + use.bytes;
    }
    bool is_live(Address address, std::uint64_t bytes) const {
        const auto next = live_.lower_bound(address);
        return (next != live_.end() && next->first < address + bytes) ||
               (next != live_.begin() &&
                std::prev(next)->first + std::prev(next)->second > address);
    }
    void note_live(Address address, std::uint64_t bytes) {
        if (is_live(address, bytes)) complain("handed out while live");
        live_[address] = bytes;
    }
    SourceResult release_now(Address address, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        ++releases;
        const auto found = segments_.find(address);
        if (found == segments_.end() || found->second != bytes)
            complain("released what it never got");
        const auto live = live_.lower_bound(address);
        if (live != live_.end() && live->first < address + bytes) {
            complain("released under a live block");
        }
        if (fails_now()) return {SourceStatus::failed, 0, 1};
        if (release_waits) finished_ = known_ = submitted_; // as cuMemFree
        segments_.erase(address);
        held_ -= bytes;
        released.push_back(address);
        return {};
    }
    static Clock join(const Clock& a, const Clock& b) {
        Clock both{};
        for (std::size_t i = 0; i < kStreams; ++i)
            both[i] = std::max(a[i], b[i]);
        return both;
    }
    static bool covers(const Clock& all, const Clock& part) { return join(all, part) == all; }

    void advance_locked(int count) {
        for (int tries = 0; count > 0 && tries < 64; ++tries) {
            const std::size_t stream = random_() % kStreams;
            if (stream == stuck_stream || finished_[stream] == submitted_[stream]) continue;
            Clock needs = work_[stream][finished_[stream]];
            --needs[stream];
            if (!covers(finished_, needs)) continue;
            ++finished_[stream];
            --count;
        }
    }
    bool fails_now() { return ++calls == fail_at; }
    OrderResult order_failure() {
        return fails_now() ? OrderResult{order_failure_status, 999} : OrderResult{};
    }
    void complain_if(const char* what) {
        if (what != nullptr) complain(what);
    }
    void complain(const char* what) {
        if (complaints_.size() < 5) complaints_.emplace_back(what);
    }

    std::mutex mutex_;
    std::mt19937_64 random_;
    const std::uint64_t memory_;
    Clock submitted_{};
    Clock finished_{};
    Clock known_{};   ///< finished, and the host was told
    Clock barrier_{}; ///< all later work waits for these
    std::array<Clock, kStreams> streams_{};
    std::array<std::vector<Clock>, kStreams> work_{}; ///< what each piece of work waits for
    std::array<Clock, cachealloc::Fences::kEvents + cachealloc::StreamEvents::kEvents> events_{};
    std::vector<Use> uses_;
    std::vector<Use> unfinished_; ///< all work, by memory and by address
    std::map<Address, std::uint64_t> live_;
    std::map<Address, std::uint64_t> segments_;
    SimulatedMappings mappings_;
    std::uint64_t held_ = 0;
    std::uint64_t held_peak_ = 0;
    std::vector<std::string> complaints_;
};
