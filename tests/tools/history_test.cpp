#include "tools/analysis/history.h"

#include "tests/tools/example_recording.h"
#include "tests/tools/temporary_file.h"

#include <catch2/catch.hpp>

#include <random>

using cachealloc::tests::EventDetails;
using cachealloc::tests::kMiB;
using cachealloc::tests::TemporaryFile;
using cachealloc::tests::TraceBuilder;
using namespace cachealloc::tools;
namespace trace = cachealloc::trace;

namespace {

/// Notes live, reserved and pending bytes of device 0 after each event, in MiB.
class Bytes : public HistoryVisitor {
  public:
    void on_start(const State& state) override { note(state); }
    void on_event(const Event& event, const State& state, const Block* ended) override {
        note(state);
        kinds.push_back(event.kind);
        if (ended != nullptr) ended_sizes.push_back(ended->size / kMiB);
    }
    void on_end(const State& state) override { end_live = state.device(0).live / kMiB; }

    std::vector<std::uint64_t> live, reserved, pending, ended_sizes;
    std::vector<trace::EventKind> kinds;
    std::uint64_t end_live = 0;

  private:
    void note(const State& state) {
        live.push_back(state.device(0).live / kMiB);
        reserved.push_back(state.device(0).reserved / kMiB);
        pending.push_back(state.device(0).pending / kMiB);
    }
};

/// A recording written by `fill`, and its history.
struct Written {
    template <class Fill>
    explicit Written(Fill fill) : file(make(fill)), trace(file.path()), history(trace) {
        history.visit(bytes);
    }
    template <class Fill>
    static std::vector<std::byte> make(Fill fill) {
        TraceBuilder builder;
        fill(builder);
        return builder.bytes();
    }
    TemporaryFile file;
    Trace trace;
    History history;
    Bytes bytes;
};

using Numbers = std::vector<std::uint64_t>;

} // namespace

TEST_CASE("the state follows the events") {
    Written run(cachealloc::tests::example_recording);
    CHECK(run.history.whole());
    CHECK(run.bytes.live == Numbers{0, 0, 16, 17, 47, 55, 55, 59, 43, 13, 13, 9, 9, 9});
    CHECK(run.bytes.reserved == Numbers{0, 64, 64, 64, 64, 64, 96, 96, 96, 96, 160, 160, 160, 160});
    CHECK(run.bytes.pending == Numbers{0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 0, 0});
    CHECK(run.bytes.ended_sizes == Numbers{16, 30, 4, 16});
    CHECK(run.bytes.end_live == 9);
    CHECK(run.history.end().live().size() == 2);
    CHECK(run.history.end().device(0).handed == 2 * kMiB);
    CHECK(run.history.counts().inserted_allocs == 0);
    CHECK(run.history.counts().lost_frees == 0);
}

TEST_CASE("a ring that came round knows what was live before its first event") {
    Written run([](TraceBuilder& builder) {
        builder.ring_chunks(2);
        builder.segment_alloc(0, 64 * kMiB);
        builder.alloc(kMiB, 5 * kMiB);     // lives to the end
        builder.alloc(8 * kMiB, 7 * kMiB); // is freed when the ring has forgotten it
        builder.alloc(16 * kMiB,
                      9 * kMiB); // is freed, not finished, when the ring has forgotten it
        for (int i = 0; i < 3 * 63; ++i) {
            builder.alloc(32 * kMiB, kMiB);
            builder.free(32 * kMiB);
        }
        builder.free(8 * kMiB);
        builder.free(16 * kMiB, {}, true);
    });
    CHECK_FALSE(run.history.whole());
    CHECK(run.history.start().device(0).reserved == 64 * kMiB);
    const std::uint64_t first = run.bytes.live.front();
    CHECK((first == 21 || first == 22)); // whether the ring begins with an alloc or a free
    CHECK(run.bytes.end_live == 5);
    CHECK(run.bytes.pending.back() == 9);
    const Block* const old = run.history.start().live().find({kMiB, 0});
    REQUIRE(old != nullptr);
    CHECK(old->since == TraceBuilder::kStart + 2000); // the live table knows when
    const Block* const freed = run.history.start().live().find({8 * kMiB, 0});
    REQUIRE(freed != nullptr);
    CHECK(freed->since == 0); // nothing knows when
}

TEST_CASE("an allocation that only the live table knows comes at its time") {
    Written run([](TraceBuilder& builder) {
        builder.alloc(0, 1 * kMiB);
        builder.lose();
        builder.alloc(kMiB, 2 * kMiB);
        builder.unlose();
        builder.alloc(4 * kMiB, 4 * kMiB);
    });
    CHECK(run.history.counts().inserted_allocs == 1);
    CHECK(run.bytes.live == Numbers{0, 1, 3, 7});
}

TEST_CASE("a free that was lost is taken from what follows") {
    SECTION("the address is handed out again") {
        Written run([](TraceBuilder& builder) {
            builder.alloc(0, 1 * kMiB);
            builder.lose();
            builder.free(0);
            builder.unlose();
            builder.alloc(0, 2 * kMiB);
        });
        CHECK(run.history.counts().implied_frees == 1);
        CHECK(run.bytes.live == Numbers{0, 1, 0, 2});
        CHECK(run.bytes.kinds[1] == trace::EventKind::free);
    }
    SECTION("the live table lacks it") {
        Written run([](TraceBuilder& builder) {
            builder.alloc(0, 1 * kMiB);
            builder.lose();
            builder.free(0);
            builder.unlose();
            builder.alloc(kMiB, 2 * kMiB);
        });
        CHECK(run.history.counts().lost_frees == 1);
        CHECK(run.bytes.live == Numbers{0, 1, 3});
        CHECK(run.bytes.end_live == 2);
    }
}

TEST_CASE("memory of other spaces may have the same address") {
    Written run([](TraceBuilder& builder) {
        const auto of = [](trace::MemoryType memory) {
            EventDetails details;
            details.memory = memory;
            return details;
        };
        builder.alloc(0, 1 * kMiB);
        builder.alloc(0, 2 * kMiB, of(trace::MemoryType::pinned));
        builder.alloc(0, 4 * kMiB, of(trace::MemoryType::array));
        builder.alloc(0, 8 * kMiB, of(trace::MemoryType::physical));
        builder.alloc(0, 16 * kMiB, of(trace::MemoryType::mapping));
        builder.free(0, of(trace::MemoryType::physical));
    });
    CHECK(run.bytes.live == Numbers{0, 1, 1, 5, 13, 13, 5});
    CHECK(run.history.end().device(0).host == 2 * kMiB);
}

TEST_CASE("whatever the ring kept, the end is what the builder says") {
    const auto seed = static_cast<std::uint32_t>(Catch::rngSeed());
    CAPTURE(seed);
    std::mt19937 random(seed);
    for (std::uint32_t round = 0; round < 40; ++round) {
        // One thread's ring begins at one moment; with several, chunks of that time lack.
        const std::uint32_t threads = 1 + round % 2 * 3;
        std::map<std::uint64_t, std::uint64_t> live; // what must come out
        Written run([&](TraceBuilder& builder) {
            builder.ring_chunks(1 + random() % 20);
            for (int i = 0; i < 1000; ++i) {
                const std::uint64_t address = random() % 100 * kMiB;
                EventDetails details;
                details.thread = 1 + static_cast<std::uint32_t>(random() % threads);
                if (live.contains(address)) {
                    builder.free(address, details, random() % 2 == 0);
                    live.erase(address);
                } else {
                    live[address] = (1 + random() % 8) * kMiB;
                    builder.alloc(address, live[address], details);
                }
            }
        });
        std::uint64_t sum = 0;
        for (const auto& [address, size] : live)
            sum += size;
        CHECK(run.history.end().live().size() == live.size());
        CHECK(run.history.end().device(0).live == sum);
        CHECK(run.bytes.end_live * kMiB == sum);
        if (threads != 1) continue;
        CHECK(run.bytes.live.back() * kMiB == sum);
        CHECK(run.history.counts().lost_frees == 0);
        CHECK(run.history.counts().unknown_frees == 0);
    }
}
