#include "shim/host_visible.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

using namespace cachealloc::shim;

namespace {

using Stream = HostVisible::Stream;
using Seen = HostVisible::Seen;

CUcontext context(std::uintptr_t n) {
    return reinterpret_cast<CUcontext>(n << 8);
}
CUevent event(std::uintptr_t n) {
    return reinterpret_cast<CUevent>(n << 6);
}
Stream stream(std::uint64_t id, CUcontext of = context(1)) {
    return {id, reinterpret_cast<CUstream>(std::uintptr_t{id} << 5), of, of, 0};
}

/// Says what a test wants to hear, and notes who was asked.
struct Answers final : HostVisible::Probe {
    bool idle(const Stream& stream) override {
        asked.push_back(stream.id);
        return idle_streams.count(stream.id) != 0;
    }
    std::set<std::uint64_t> idle_streams;
    std::vector<std::uint64_t> asked;
};

struct Fixture {
    std::unique_ptr<HostVisible> host = std::make_unique<HostVisible>();
    Answers busy;

    bool waits(CUcontext owner = context(1)) { return host->must_wait(owner, busy); }
    void record(CUevent e, std::uint64_t id, bool success = true) {
        const HostVisible::Record record = host->begin_record(e, id);
        host->end_record(e, record, success);
    }
    void synchronize(CUevent e) {
        const Seen seen = host->covered_by_event(e);
        host->settle(e, seen);
    }
    void synchronize(std::uint64_t id) { host->settle(host->covered_by_stream(id)); }
    void wait(std::uint64_t id, CUevent e) { host->joined(id, e, host->covered_by_event(e)); }
};

} // namespace

TEST_CASE("HostVisible: a stream's work is outstanding until the stream is synchronised") {
    Fixture f;
    CHECK_FALSE(f.host->any());
    CHECK_FALSE(f.waits());
    f.host->submitted(stream(7));
    CHECK(f.host->any());
    CHECK(f.waits());
    f.synchronize(8);
    CHECK(f.waits());
    f.synchronize(7);
    CHECK_FALSE(f.host->any());
    CHECK_FALSE(f.waits());
}

TEST_CASE("HostVisible: what comes after the call began is not covered by it") {
    Fixture f;
    f.host->submitted(stream(7));
    const HostVisible::Cover cover = f.host->covered_by_stream(7);
    const HostVisible::Number upto = f.host->latest();
    f.host->submitted(stream(7));
    f.host->settle(cover);
    CHECK(f.waits());
    f.host->settle_context(context(1), upto);
    CHECK(f.waits());
    f.host->settle_owner(context(1), upto, f.busy);
    CHECK(f.waits());
    f.host->settle_owner(context(1), f.host->latest(), f.busy);
    CHECK_FALSE(f.waits());
}

TEST_CASE("HostVisible: an event covers what its stream came after when it was recorded") {
    Fixture f;
    f.host->submitted(stream(7));
    f.record(event(1), 7);
    SECTION("its synchronisation settles that") {
        f.synchronize(event(1));
        CHECK_FALSE(f.waits());
    }
    SECTION("but nothing submitted later") {
        f.host->submitted(stream(7));
        f.synchronize(event(1));
        CHECK(f.waits());
    }
    SECTION("nothing of another stream") {
        f.host->submitted(stream(8));
        f.synchronize(event(1));
        CHECK(f.waits());
        f.synchronize(8);
        CHECK_FALSE(f.waits());
    }
    SECTION("nothing once it was recorded elsewhere") {
        f.record(event(1), 8);
        f.synchronize(event(1));
        CHECK(f.waits());
    }
    SECTION("nothing when it was recorded again during the call") {
        const Seen seen = f.host->covered_by_event(event(1));
        f.record(event(1), 8);
        f.host->settle(event(1), seen);
        CHECK(f.waits());
    }
    SECTION("nothing when all were forgotten during the call") {
        const Seen seen = f.host->covered_by_event(event(1));
        f.host->forget_events();
        f.host->settle(event(1), seen);
        CHECK(f.waits());
        f.record(event(1), 7); // from then on it is known again
        f.synchronize(event(1));
        CHECK_FALSE(f.waits());
    }
    SECTION("nothing once it is destroyed, recorded unseen or its context gone") {
        switch (GENERATE(0, 1, 2)) {
        case 0:
            f.host->forget_event(event(1));
            break;
        case 1:
            f.host->forget_events();
            break;
        default:
            f.host->context_ended(context(2));
        }
        f.synchronize(event(1));
        CHECK(f.waits());
    }
    SECTION("nothing when that happens during its record") {
        const HostVisible::Record record = f.host->begin_record(event(1), 7);
        if (GENERATE(false, true)) {
            f.host->forget_event(event(1));
        } else {
            f.host->forget_events();
        }
        f.host->end_record(event(1), record, true);
        f.synchronize(event(1));
        CHECK(f.waits());
    }
    SECTION("nothing when its record failed") {
        f.record(event(2), 7, false);
        f.synchronize(event(2));
        CHECK(f.waits());
    }
}

TEST_CASE("HostVisible: two records of an event at once cover nothing") {
    Fixture f;
    f.host->submitted(stream(7));
    const HostVisible::Record first = f.host->begin_record(event(1), 7);
    f.synchronize(event(1)); // between begin and end: unknown
    CHECK(f.waits());
    const HostVisible::Record second = f.host->begin_record(event(1), 8);
    const bool in_order = GENERATE(false, true);
    f.host->end_record(event(1), in_order ? first : second, true);
    f.host->end_record(event(1), in_order ? second : first, true);
    f.synchronize(event(1));
    CHECK(f.waits());
    f.record(event(1), 7); // a later one is clear again
    f.synchronize(event(1));
    CHECK_FALSE(f.waits());
}

TEST_CASE("HostVisible: order goes from stream to stream through events") {
    Fixture f;
    f.host->submitted(stream(1));
    f.record(event(1), 1);
    f.wait(2, event(1));
    SECTION("a synchronisation of the waiting stream covers it") {
        f.synchronize(2);
        CHECK_FALSE(f.waits());
    }
    SECTION("also along a chain, by an event at its end") {
        f.record(event(2), 2);
        f.wait(3, event(2));
        f.host->submitted(stream(3));
        f.record(event(3), 3);
        f.synchronize(event(3));
        CHECK_FALSE(f.waits());
    }
    SECTION("not what came to the first stream later") {
        f.host->submitted(stream(1));
        f.synchronize(2);
        CHECK(f.waits());
    }
    SECTION("not an event recorded before the wait") {
        Fixture g;
        g.host->submitted(stream(1));
        g.record(event(2), 2);
        g.record(event(1), 1);
        g.wait(2, event(1));
        g.synchronize(event(2));
        CHECK(g.waits());
    }
    SECTION("not when the event was recorded again before the wait was accepted") {
        Fixture g;
        g.host->submitted(stream(1));
        g.record(event(1), 1);
        const Seen seen = g.host->covered_by_event(event(1));
        g.record(event(1), 4);
        g.host->joined(2, event(1), seen);
        g.synchronize(2);
        CHECK(g.waits());
    }
}

TEST_CASE("HostVisible: a free asks the streams of its own pool, and idle ones are settled") {
    Fixture f;
    f.host->submitted(stream(1));
    f.host->submitted(stream(2));
    f.host->submitted(stream(3, context(2)));
    CHECK(f.waits());
    CHECK(f.busy.asked == std::vector<std::uint64_t>{1, 2});
    f.busy.idle_streams = {1, 2};
    CHECK_FALSE(f.waits());
    CHECK(f.host->any()); // the other context's
    f.busy.idle_streams = {3};
    f.host->settle_idle(f.busy);
    CHECK_FALSE(f.host->any());
}

TEST_CASE("HostVisible: contexts that share a pool are asked after its wait") {
    Fixture f;
    Stream green = stream(2, context(9));
    green.owner = context(1);
    f.host->submitted(stream(1));
    f.host->submitted(green);
    f.host->settle_owner(context(1), f.host->latest(), f.busy);
    CHECK(f.busy.asked == std::vector<std::uint64_t>{2});
    CHECK(f.waits());
    f.busy.idle_streams = {2};
    CHECK_FALSE(f.waits());
}

TEST_CASE("HostVisible: the dead are not asked") {
    Fixture f;
    f.host->submitted(stream(1));
    f.busy.idle_streams = {1};
    SECTION("a destroyed stream's work stays until a wait covers it") {
        f.host->stream_ends(stream(1).handle);
        CHECK(f.waits());
        CHECK(f.busy.asked.empty());
        f.host->settle_owner(context(1), f.host->latest(), f.busy);
        CHECK_FALSE(f.waits());
    }
    SECTION("a context's work ends with it") {
        f.host->context_ends(context(1));
        CHECK(f.waits());
        CHECK(f.busy.asked.empty());
        f.host->context_ended(context(1));
        CHECK_FALSE(f.host->any());
    }
    SECTION("a new stream with the old one's handle is another") {
        f.host->stream_ends(stream(1).handle);
        Stream again = stream(2);
        again.handle = stream(1).handle;
        f.host->submitted(again);
        CHECK(f.waits());
        CHECK(f.busy.asked == std::vector<std::uint64_t>{2});
    }
}

TEST_CASE("HostVisible: what finds no room stays outstanding until a free has waited") {
    Fixture f;
    for (std::uint64_t id = 1; id <= HostVisible::kPending + 1; ++id)
        f.host->submitted(stream(id));
    for (std::uint64_t id = 1; id <= HostVisible::kPending; ++id)
        f.synchronize(id);
    f.synchronize(HostVisible::kPending + 1);
    CHECK(f.waits());
    const HostVisible::Number upto = f.host->latest();
    SECTION("in its own pool") {
        CHECK_FALSE(f.waits(context(2)));
        f.host->settle_owner(context(2), upto, f.busy);
        CHECK(f.waits());
        f.host->settle_owner(context(1), upto, f.busy);
        CHECK_FALSE(f.host->any());
    }
    SECTION("a stream that the driver does not name counts likewise") {
        f.host->settle_owner(context(1), upto, f.busy);
        f.host->submitted(stream(0));
        f.synchronize(std::uint64_t{0});
        CHECK(f.waits());
    }
}

TEST_CASE("HostVisible: more events and streams than there is room for are waited for") {
    Fixture f;
    f.host->submitted(stream(1));
    for (std::uintptr_t i = 1; i <= 4 * HostVisible::kEvents; ++i)
        f.record(event(i), 1);
    for (std::uint64_t id = 2; id <= 4 * HostVisible::kStreams; ++id)
        f.wait(id, event(4 * HostVisible::kEvents));
    CHECK(f.waits());
    f.synchronize(event(4 * HostVisible::kEvents)); // the latest is remembered
    CHECK_FALSE(f.waits());
}

namespace {

/// Streams as queues, events as positions in them: what has really finished.
class Model {
  public:
    static constexpr std::size_t kStreams = 5;
    static constexpr std::size_t kEvents = 6;
    using Clock = std::array<std::uint64_t, kStreams>; ///< per stream: operations done or awaited

    void submit(std::size_t s) { ++tail_[s][s]; }
    void submit_visible(std::size_t s) {
        submit(s);
        visible_[s] = tail_[s][s];
    }
    void record(std::size_t e, std::size_t s) { events_[e] = tail_[s]; }
    void wait(std::size_t s, std::size_t e) {
        merge(tail_[s], events_[e]);
        submit(s);
    }
    void synchronize_event(std::size_t e) { merge(known_, events_[e]); }
    void synchronize_stream(std::size_t s) { merge(known_, tail_[s]); }
    void synchronize_all() {
        for (const Clock& tail : tail_)
            merge(known_, tail);
    }
    /// Whether host-visible work exists that no synchronisation has covered.
    bool must_wait() const {
        for (std::size_t s = 0; s < kStreams; ++s) {
            if (visible_[s] > known_[s]) return true;
        }
        return false;
    }

  private:
    static void merge(Clock& into, const Clock& from) {
        for (std::size_t s = 0; s < kStreams; ++s)
            into[s] = std::max(into[s], from[s]);
    }
    std::array<Clock, kStreams> tail_{};
    std::array<Clock, kEvents> events_{};
    Clock known_{};
    Clock visible_{};
};

} // namespace

TEST_CASE("HostVisible random: exactly what no synchronisation has covered is outstanding") {
    const auto first_seed = std::random_device{}();
    for (std::uint64_t i = 0; i < 400; ++i) {
        const std::uint64_t seed = first_seed + i;
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const auto below = [&random](std::size_t end) { return random() % end; };
        Fixture f;
        Model model;
        for (int step = 0; step < 300; ++step) {
            const std::size_t s = below(Model::kStreams);
            const std::size_t e = below(Model::kEvents);
            // As the shim does: while nothing is outstanding only submissions are followed.
            const bool any = f.host->any();
            switch (below(12)) {
            case 0:
            case 1:
                f.host->submitted(stream(s + 1));
                model.submit_visible(s);
                break;
            case 2:
            case 3:
            case 4:
                if (any) f.record(event(e + 1), s + 1);
                model.record(e, s);
                break;
            case 5:
            case 6:
            case 7:
                if (any) f.wait(s + 1, event(e + 1));
                model.wait(s, e);
                break;
            case 8:
                if (any) f.synchronize(s + 1);
                model.synchronize_stream(s);
                break;
            case 9:
            case 10:
                if (any) f.synchronize(event(e + 1));
                model.synchronize_event(e);
                break;
            default:
                if (below(4) != 0) break;
                f.host->settle_owner(context(1), f.host->latest(), f.busy);
                model.synchronize_all();
            }
            CAPTURE(step);
            REQUIRE(f.waits() == model.must_wait());
            REQUIRE(f.host->any() == model.must_wait());
        }
    }
}
