#include "core/record/live_table.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/single_step.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::AddressSpace;
using trace::EventKind;
using trace::EventRecord;
using trace::MemoryType;

namespace {

void fill(EventRecord& record, std::uint64_t address, std::uint64_t sequence,
          MemoryType memory = MemoryType::pooled) {
    record.sequence = sequence;
    record.time = sequence;
    record.address = address;
    record.size = address + sequence;
    record.kind = EventKind::alloc;
    record.memory = memory;
    record.check = trace::check_word(record);
}

/// A table over memory of its own.
class Table {
  public:
    explicit Table(std::size_t slots)
        : memory_(std::make_unique<EventRecord[]>(slots)), count_(slots),
          table_(memory_.get(), slots) {}

    bool insert(std::uint64_t address, std::uint64_t sequence,
                MemoryType memory = MemoryType::pooled) {
        EventRecord record{};
        fill(record, address, sequence, memory);
        EventRecord replaced;
        const bool room = table_.insert(record, replaced);
        replaced_ = replaced.sequence;
        return room;
    }
    /// The sequence of what was taken; 0: nothing.
    std::uint64_t take(std::uint64_t address, AddressSpace space = AddressSpace::device) {
        EventRecord taken{};
        return table_.take(space, address, taken) ? taken.sequence.load() : 0;
    }
    std::uint64_t find(std::uint64_t address, AddressSpace space = AddressSpace::device) {
        EventRecord found{};
        return table_.find(space, address, found) ? found.sequence.load() : 0;
    }
    std::uint64_t replaced() const { return replaced_; }
    LiveTable& operator*() { return table_; }
    std::span<const EventRecord> slots() const { return {memory_.get(), count_}; }

  private:
    std::unique_ptr<EventRecord[]> memory_;
    std::size_t count_;
    LiveTable table_;
    std::uint64_t replaced_ = 0;
};

} // namespace

TEST_CASE("live table: an address is one entry a space", "[record]") {
    Table table(64 * 16);
    CHECK(table.insert(512, 1));
    CHECK(table.insert(512, 2, MemoryType::pinned));
    CHECK(table.replaced() == 0);
    CHECK(table.find(512) == 1);
    CHECK(table.find(512, AddressSpace::host) == 2);
    CHECK(table.find(512, AddressSpace::array) == 0);
    CHECK(table.insert(512, 3));
    CHECK(table.replaced() == 1);
    CHECK((*table).size() == 2);
    CHECK(table.take(512) == 3);
    CHECK(table.take(512) == 0);
    CHECK(table.take(512, AddressSpace::host) == 2);
    CHECK((*table).size() == 0);
}

TEST_CASE("live table: a segment and its first block share an address", "[record]") {
    Table table(64 * 16);
    EventRecord segment{};
    fill(segment, 512, 7);
    segment.kind = EventKind::segment_alloc;
    EventRecord replaced;
    REQUIRE((*table).insert(segment, replaced));
    CHECK(table.insert(512, 8));
    CHECK(table.take(512) == 8);
    CHECK(table.find(512) == 0);
    CHECK(table.take(512, AddressSpace::segment) == 7);
}

TEST_CASE("live table: it holds what a map holds, up to being full", "[record]") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t kSlots = 64 * 16;
    Table table(kSlots);
    std::map<std::uint64_t, std::uint64_t> model;
    std::uint64_t full = 0;
    for (std::uint64_t sequence = 1; sequence <= 200'000; ++sequence) {
        // Phases that fill it to the brim and phases that empty it.
        const bool inserts = random() % 10 < (sequence / 5000 % 2 == 0 ? 7U : 3U);
        const std::uint64_t address = random() % 3000 * 512;
        const auto known = model.find(address);
        if (inserts) {
            const bool room = table.insert(address, sequence);
            if (known != model.end() && !room) FAIL("no room for what was there");
            if (table.replaced() != (known != model.end() ? known->second : 0))
                FAIL("replaced the wrong one");
            if (room) model[address] = sequence;
            full += room ? 0 : 1;
        } else {
            if (table.take(address) != (known != model.end() ? known->second : 0))
                FAIL("took the wrong one");
            model.erase(address);
        }
        if ((*table).size() != model.size()) FAIL("wrong size");
    }
    CHECK(full > 0);
    std::map<std::uint64_t, std::uint64_t> left;
    for (const EventRecord& slot : table.slots()) {
        if (slot.sequence == 0) continue;
        CHECK(slot.check == trace::check_word(slot));
        CHECK(left.emplace(slot.address, slot.sequence).second);
    }
    CHECK(left == model);
}

#ifndef __SANITIZE_THREAD__ // its runtime deadlocks when its own instructions are stepped through
TEST_CASE("live table: killed after whatever instruction, it has lost nothing", "[record]") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Table table(64 * 8);
    std::map<std::uint64_t, std::uint64_t> model;
    std::uint64_t looks = 0;
    std::uint64_t lost = 0;
    std::uint64_t torn = 0;
    std::uint64_t twice = 0;
    std::uint64_t sequence = 0;
    std::vector<std::uint64_t> seen; // by sequence: how often it is there
    for (int round = 0; round < 600; ++round) {
        const std::uint64_t address = random() % 700 * 512; // nearly full: long moves
        const bool inserts = round < 450 || random() % 2 == 0;
        const auto known = model.find(address);
        const std::uint64_t victim = known != model.end() ? known->second : 0;
        ++sequence;
        seen.assign(sequence + 1, 0);
        const auto look = [&] {
            ++looks;
            std::ranges::fill(seen, 0);
            for (const EventRecord& slot : table.slots()) {
                const std::uint64_t number = slot.sequence.load(std::memory_order_relaxed);
                if (number == 0) continue;
                if (number > sequence || slot.check != trace::check_word(slot)) ++torn;
                if (number <= sequence && ++seen[number] == 2) ++twice;
            }
            for (const auto& [unused, number] : model) {
                if (number != victim && seen[number] == 0) ++lost;
            }
        };
        if (round < 400) { // fills it first
            if (table.insert(address, sequence)) model[address] = sequence;
            continue;
        }
        bool room = false;
        single_step(
            [&] {
                if (inserts) {
                    room = table.insert(address, sequence);
                } else {
                    table.take(address);
                }
            },
            look);
        if (inserts && room) model[address] = sequence;
        if (!inserts) model.erase(address);
    }
    CHECK(looks > 10'000);
    CHECK(lost == 0);
    CHECK(torn == 0);
    CHECK(twice > 0); // an entry that moves: readers count one sequence once
}
#endif

TEST_CASE("live table: entries that are chosen end, all of them", "[record]") {
    Table table(64 * 64);
    for (std::uint64_t i = 1; i <= 2000; ++i)
        REQUIRE(table.insert(i * 512, i));
    const auto odd = [](const EventRecord& record, void* count) {
        ++*static_cast<std::uint64_t*>(count);
        return record.sequence % 2 == 1;
    };
    std::uint64_t asked = 0;
    std::uint64_t taken = 0;
    std::uint32_t shard = 0;
    EventRecord ended;
    while ((*table).take_if(odd, &asked, shard, ended)) {
        CHECK(ended.sequence % 2 == 1);
        ++taken;
    }
    CHECK(taken == 1000);
    CHECK(asked >= 2000);
    CHECK((*table).size() == 1000);
    for (std::uint64_t i = 1; i <= 2000; ++i) {
        if (table.find(i * 512) != (i % 2 == 0 ? i : 0)) FAIL("wrong entry at " << i);
    }
}

TEST_CASE("live table: threads that work on their own addresses do not meet", "[record]") {
    Table table(64 * 256);
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> wrong{0};
    for (std::uint64_t number = 0; number < 4; ++number) {
        threads.emplace_back([&, number] {
            std::mt19937_64 random(number);
            std::map<std::uint64_t, std::uint64_t> mine;
            for (std::uint64_t sequence = 1; sequence <= 20000; ++sequence) {
                const std::uint64_t address = (random() % 1000 * 4 + number) * 512;
                const std::uint64_t known = mine.contains(address) ? mine[address] : 0;
                if (known != 0) {
                    if (table.take(address) != known) ++wrong;
                    mine.erase(address);
                } else {
                    EventRecord record{};
                    fill(record, address, sequence);
                    EventRecord replaced;
                    if (!(*table).insert(record, replaced) || replaced.sequence != 0) ++wrong;
                    mine[address] = sequence;
                }
            }
            for (const auto& [address, sequence] : mine) {
                if (table.take(address) != sequence) ++wrong;
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
    CHECK((*table).size() == 0);
}
