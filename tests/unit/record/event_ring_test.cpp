#include "core/record/event_ring.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/small_file.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <sys/resource.h>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::EventRecord;
using trace::SectionType;

namespace {

constexpr std::uint64_t kRecords = trace::kChunkRecords;

// That a thread is gone is the kernel's word, which ThreadSanitizer does not take for an order.
#ifdef __SANITIZE_THREAD__
constexpr bool kMayVanish = false;
#else
constexpr bool kMayVanish = true;
#endif

class Ring {
  public:
    explicit Ring(std::uint64_t chunks, std::uint64_t step = 0)
        : small_({{SectionType::events, trace::kChunkBytes, chunks * trace::kChunkBytes,
                   step * trace::kChunkBytes, (step != 0 ? step : chunks) * trace::kChunkBytes},
                  {SectionType::threads, sizeof(trace::ThreadRecord), 1 << 20, 0, 0}}),
          threads_(small_.file(), small_.space(1)),
          ring_(small_.file(), small_.space(0), threads_) {}

    /// One event of that value; false where it was lost.
    bool write(RingPlace& place, std::uint32_t thread, std::uint64_t value) {
        bool fresh = false;
        if (!ring_.ready(place, thread, fresh)) return false;
        EventRecord record{};
        record.sequence = EventRing::next_sequence(place);
        record.thread = thread;
        record.address = value;
        record.check = trace::check_word(record);
        EventRing::commit(place, record);
        return true;
    }
    std::uint64_t present() const { return View(small_.path()).events().size(); }
    EventRing& operator*() { return ring_; }
    ThreadLog& threads() { return threads_; }
    trace::Counters& counters() { return small_.counters(); }
    SmallFile& small() { return small_; }

  private:
    SmallFile small_;
    ThreadLog threads_;
    EventRing ring_;
};

} // namespace

TEST_CASE("event ring: what is present and what was overwritten is all that was written",
          "[record]") {
    Ring ring(8);
    const std::uint32_t thread = ring.threads().enter(1);
    RingPlace place{};
    for (std::uint64_t written = 1; written <= 30 * kRecords; ++written) {
        REQUIRE(ring.write(place, thread, written));
        if (written % 37 == 0 && ring.present() + ring.counters().overwritten != written)
            FAIL("does not add up after " << written);
    }
    const auto events = View(ring.small().path()).events();
    CHECK(events.size() == 8 * kRecords);
    std::set<std::uint64_t> values;
    for (const Event& event : events)
        values.insert(event.address);
    CHECK(*values.begin() == 22 * kRecords + 1); // the latest ones
    CHECK(values.size() == events.size());
}

TEST_CASE("event ring: chunks of a thread that writes on are passed over", "[record]") {
    Ring ring(4);
    RingPlace idle{};
    RingPlace busy{};
    const std::uint32_t thread = ring.threads().enter(1);
    REQUIRE(ring.write(idle, thread, 1'000'000));
    for (std::uint64_t i = 0; i < 50 * kRecords; ++i)
        REQUIRE(ring.write(busy, thread, i));
    REQUIRE(ring.write(idle, thread, 1'000'001));
    const auto events = View(ring.small().path()).events();
    CHECK(std::ranges::count_if(
              events, [](const Event& event) { return event.address >= 1'000'000; }) == 2);
    CHECK(events.size() == 3 * kRecords + 2);
    CHECK(events.size() + ring.counters().overwritten == 50 * kRecords + 2);
}

TEST_CASE("event ring: with more writers than chunks events are lost, and nobody waits",
          "[record]") {
    Ring ring(4);
    std::vector<RingPlace> places(10);
    const std::uint32_t thread = ring.threads().enter(1);
    std::uint64_t lost = 0;
    for (std::uint64_t i = 0; i < 1000; ++i)
        lost += ring.write(places[i % 10], thread, i) ? 0 : 1;
    CHECK(lost > 0);
    CHECK(ring.present() + ring.counters().overwritten + lost == 1000);
    for (RingPlace& place : places)
        EventRing::close(place);
    for (RingPlace& place : places) {
        CHECK(ring.write(place, thread, 0));
        EventRing::close(place);
    }
    CHECK(ring.present() + ring.counters().overwritten + lost == 1010);
}

TEST_CASE("event ring: the chunk of a thread that vanished is used again", "[record]") {
    Ring ring(2);
    std::uint32_t number = 0;
    RingPlace left{};
    std::thread([&] {
        number = ring.threads().enter(1);
        ring.write(left, number, 7);
    }).join(); // without close(): as when its end was not told
    const std::uint32_t thread = ring.threads().enter(1);
    RingPlace mine{};
    // join() returns a moment before the system has forgotten the thread.
    while (ring.threads().runs(number))
        std::this_thread::yield();
    for (std::uint64_t i = 0; i < 2 * kRecords; ++i)
        REQUIRE(ring.write(mine, thread, i));
    CHECK(ring.present() == 2 * kRecords);
    CHECK(ring.counters().overwritten == 1);
}

TEST_CASE("event ring: it grows before it overwrites", "[record]") {
    Ring ring(64, 4);
    const std::uint32_t thread = ring.threads().enter(1);
    RingPlace place{};
    for (std::uint64_t i = 0; i < 64 * kRecords; ++i) {
        REQUIRE(ring.write(place, thread, i));
        if (i % 2 == 0) (*ring).grow_ahead();
    }
    CHECK(ring.counters().overwritten == 0);
    CHECK(ring.small().file().header().sections[0].used == 64 * trace::kChunkBytes);
    CHECK(ring.write(place, thread, 0));
    CHECK(ring.counters().overwritten == kRecords);
    CHECK((ring.small().file().header().seen & trace::kRingCapped) == 0);
}

TEST_CASE("event ring: without space to grow it overwrites earlier, and says so", "[record]") {
    CHECK(in_child([] {
              Ring ring(64, 4);
              const rlimit limit{4096, 4096};
              setrlimit(RLIMIT_FSIZE, &limit);
              const std::uint32_t thread = ring.threads().enter(1);
              RingPlace place{};
              for (std::uint64_t i = 0; i < 20 * kRecords; ++i) {
                  if (!ring.write(place, thread, i)) return 1;
              }
              if (ring.present() != 4 * kRecords) return 2;
              if (ring.counters().overwritten != 16 * kRecords) return 3;
              return (ring.small().file().header().seen & trace::kRingCapped) != 0 ? 0 : 4;
          }) == 0);
}

TEST_CASE("event ring: many threads, ending and beginning, while it grows and wraps", "[record]") {
    Ring ring(16, 4);
    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint64_t> lost{0};
    for (int round = 0; round < 4; ++round) {
        std::vector<std::thread> threads;
        for (std::uint64_t number = 0; number < 24; ++number) {
            threads.emplace_back([&, number] {
                const std::uint32_t thread = ring.threads().enter(1);
                RingPlace place{};
                for (std::uint64_t i = 0; i < 300 + number; ++i) {
                    ++written;
                    if (!ring.write(place, thread, i)) ++lost;
                }
                if (number % 2 == 0 || !kMayVanish) EventRing::close(place); // the others vanish
            });
        }
        for (std::thread& thread : threads)
            thread.join();
    }
    CHECK(ring.present() + ring.counters().overwritten + lost == written);
    // A chunk is one thread's, its records in the order of writing.
    const View view(ring.small().path());
    for (const trace::Chunk& chunk : view.elements<trace::Chunk>(SectionType::events)) {
        std::uint64_t last = 0;
        for (std::uint32_t i = 0; i < kRecords; ++i) {
            const EventRecord& record = chunk.records[i];
            if (record.sequence != trace::event_sequence(chunk.header.claim, i)) break;
            CHECK(record.thread == chunk.header.thread);
            if (i != 0 && record.address != last + 1) FAIL("out of order");
            last = record.address;
        }
    }
}
