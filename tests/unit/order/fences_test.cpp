#include "core/order/fences.h"

#include "rules_off.h"
#include "scripted_order.h"

#include <catch2/catch.hpp>
#include <memory>
#include <set>

using namespace cachealloc;

namespace {

struct Fixture {
    ScriptedOrder order;
    std::unique_ptr<Fences> fences;

    explicit Fixture(OrderLevel level = OrderLevel::fenced)
        : fences(std::make_unique<Fences>(order, level)) {}

    /// A free: its stamp, with a fence behind it.
    Stamp freed() {
        const Stamp stamp = fences->stamp();
        REQUIRE(fences->fence(true).done());
        return stamp;
    }
    std::uint32_t last_event() const { return order.records.back(); }
    void fill_ring() {
        for (std::uint32_t i = 0; i < Fences::kEvents; ++i)
            freed();
    }
};

} // namespace

TEST_CASE("Fences: a stamp is finished once its fence is, and not before") {
    Fixture f;
    const Stamp first = f.freed();
    const std::uint32_t first_event = f.last_event();
    const Stamp second = f.freed();
    const std::uint32_t second_event = f.last_event();
    CHECK(first_event != second_event);
    CHECK_FALSE(f.fences->finished(first));
    CHECK_FALSE(f.fences->settled(first, true));
    CHECK_FALSE(f.fences->poll());
    CHECK(f.fences->outstanding() == 2);
    f.order.finish(first_event);
    CHECK(f.fences->poll());
    CHECK(f.fences->finished(first));
    CHECK(f.fences->settled(first, false));
    CHECK_FALSE(f.fences->finished(second));
    f.order.finish(second_event);
    CHECK(f.fences->poll());
    CHECK(f.fences->finished(second));
    CHECK(f.fences->outstanding() == 0);
    CHECK_FALSE(f.fences->poll());
}

TEST_CASE("Fences: a finished fence settles all stamps below its number at once") {
    Fixture f;
    const Stamp first = f.freed();
    const Stamp second = f.freed();
    f.order.finish(f.last_event());
    while (f.fences->poll()) {
    }
    // The older event was never asked about, or said pending: the younger one covers it.
    f.order.finish_all();
    while (f.fences->poll()) {
    }
    CHECK(f.fences->finished(first));
    CHECK(f.fences->finished(second));
}

TEST_CASE("Fences: a stamp read while an event is being recorded is not settled by it") {
    // The event may or may not cover the work before such a free.
    for (const bool rule : {true, false}) {
        Fixture f;
        Stamp during = 0;
        f.order.on_record = [&](std::uint32_t) { during = f.fences->stamp(); };
        const Stamp before = f.freed();
        f.order.on_record = nullptr;
        f.order.finish_all();
        if (rule) {
            REQUIRE(f.fences->poll());
            CHECK(f.fences->finished(before));
            CHECK_FALSE(f.fences->finished(during));
        } else {
            const RulesOff off{Rule::numbering};
            REQUIRE(f.fences->poll());
            CHECK(f.fences->finished(during)); // what the rule is for
        }
    }
}

TEST_CASE("Fences: of two threads that free at once, neither settles the other early") {
    // Thread 2 frees while thread 1 is between its number and its record.
    Fixture f;
    Stamp two = 0;
    std::uint32_t event_two = 0;
    f.order.on_record = [&](std::uint32_t) {
        f.order.on_record = nullptr;
        two = f.fences->stamp();
        REQUIRE(f.fences->fence(true).done());
        event_two = f.last_event();
    };
    const Stamp one = f.freed();
    const std::uint32_t event_one = f.last_event();
    REQUIRE(one < two);
    SECTION("thread 1's event, recorded last, covers itself only by number") {
        f.order.finish(event_one);
        while (f.fences->poll()) {
        }
        CHECK(f.fences->finished(one));
        CHECK_FALSE(f.fences->finished(two));
    }
    SECTION("thread 2's event was recorded after thread 1's free began: it covers both") {
        f.order.finish(event_two);
        CHECK(f.fences->host_wait(two).done());
        CHECK(f.fences->finished(one));
        CHECK(f.fences->finished(two));
    }
}

TEST_CASE("Fences: an event whose record is not over yet is neither asked nor waited for") {
    Fixture f;
    Stamp inside = 0;
    f.order.on_record = [&](std::uint32_t) {
        f.order.on_record = nullptr;
        f.order.query_answer = {}; // a real driver calls an event that was never recorded finished
        inside = f.fences->stamp() - 1;
        CHECK_FALSE(f.fences->poll());
        CHECK(f.order.queries.empty());
        CHECK(f.fences->barrier(inside).status == OrderStatus::refused);
        CHECK(f.fences->barrier_behind_all().done()); // nothing is there to wait for
        CHECK(f.order.waits.empty());
        CHECK_FALSE(f.fences->settled(inside, true));
    };
    CHECK(f.freed() == inside);
    CHECK(f.fences->poll());
    CHECK(f.fences->finished(inside));
}

TEST_CASE("Fences: a full ring refuses whoever must not wait, and takes no number for it") {
    Fixture f;
    f.fill_ring();
    const Stamp before = f.fences->stamp();
    CHECK(f.fences->fence(false).status == OrderStatus::refused);
    CHECK(f.fences->stamp() == before);
    CHECK(f.order.records.size() == Fences::kEvents);
    CHECK(std::set<std::uint32_t>(f.order.records.begin(), f.order.records.end()).size() ==
          Fences::kEvents);
    CHECK(f.order.pauses == 0);
    // The oldest finishes: one may go on, the next may not.
    f.order.finish(f.order.records.front());
    REQUIRE(f.fences->poll());
    CHECK(f.fences->fence(false).done());
    CHECK(f.last_event() == f.order.records.front());
    CHECK(f.fences->fence(false).status == OrderStatus::refused);
}

TEST_CASE("Fences: a full ring makes whoever may wait wait for the oldest only") {
    Fixture f;
    f.fill_ring();
    const std::uint32_t oldest = f.order.records.front();
    f.order.on_pause = [&] {
        if (f.order.pauses == 3) f.order.finish(oldest);
    };
    const Stamp stamp = f.fences->stamp();
    CHECK(f.fences->fence(true).done());
    CHECK(f.order.pauses >= 3);
    CHECK(f.order.pauses <= 4);
    CHECK(f.last_event() == oldest);
    CHECK_FALSE(f.fences->finished(stamp)); // the slot's new event is another
    f.order.finish_all();
    CHECK(f.fences->host_wait(stamp).done());
}

TEST_CASE("Fences: a ring that runs full is emptied by halves, not one event at a time") {
    // One stream whose barriers settle everything: nobody ever polls.
    Fixture f;
    f.fill_ring();
    f.order.finish_all();
    f.order.queries.clear();
    for (std::uint32_t i = 0; i < Fences::kEvents / 2; ++i)
        f.freed();
    CHECK(f.order.queries.size() <= 4);
    CHECK(f.order.pauses == 0);
}

TEST_CASE("Fences: a slot is not taken over from a thread that has yet to record into it") {
    Fixture f;
    std::uint32_t refused = 0;
    f.order.on_record = [&](std::uint32_t) {
        f.order.on_record = nullptr;
        f.order.finish_all();
        for (std::uint32_t i = 0; i < Fences::kEvents; ++i) {
            while (f.fences->poll()) {
            }
            if (!f.fences->fence(false).done()) ++refused;
        }
    };
    f.freed();
    CHECK(refused == 1);
    CHECK(std::set<std::uint32_t>(f.order.records.begin(), f.order.records.end()).size() ==
          Fences::kEvents);
}

TEST_CASE("Fences: a failed record settles nothing and frees its slot") {
    for (const OrderResult answer :
         {OrderResult{OrderStatus::failed, 4}, OrderResult{OrderStatus::refused, 0}}) {
        Fixture f;
        f.order.record_answer = answer;
        const Stamp stamp = f.fences->stamp();
        const OrderResult result = f.fences->fence(true);
        CHECK(result.status == answer.status);
        CHECK(result.native == answer.native);
        CHECK(f.fences->lost() == 0);
        f.order.finish_all();
        CHECK_FALSE(f.fences->poll());
        CHECK_FALSE(f.fences->finished(stamp));
        CHECK(f.fences->barrier(stamp).status == OrderStatus::refused);
        // A later fence covers that stamp too, and the ring goes round without waiting for the
        // slot.
        f.order.record_answer = {};
        CHECK(f.fences->fence(true).done());
        CHECK(f.fences->host_wait(stamp).done());
        for (std::uint32_t i = 0; i < Fences::kEvents + 5; ++i) {
            f.freed();
            while (f.fences->poll()) {
            }
        }
        CHECK(f.order.pauses == 0);
        CHECK(f.fences->outstanding() == 0);
    }
}

TEST_CASE("Fences: all records of a whole round failing does not stop the next") {
    Fixture f;
    f.order.record_answer = {OrderStatus::failed, 4};
    for (std::uint32_t i = 0; i < 2 * Fences::kEvents; ++i) {
        REQUIRE(f.fences->fence(i % 2 == 0).status == OrderStatus::failed);
    }
    f.order.record_answer = {};
    const Stamp stamp = f.freed();
    f.order.finish_all();
    CHECK(f.fences->host_wait(stamp).done());
}

TEST_CASE("Fences: a lost context stays lost and trusts no event") {
    Fixture f;
    const Stamp stamp = f.freed();
    f.order.query_answer = {OrderStatus::lost, 700};
    CHECK_FALSE(f.fences->poll());
    CHECK(f.fences->lost() == 700);
    f.order.finish_all(); // an event of a dead context may say anything
    CHECK_FALSE(f.fences->poll());
    CHECK_FALSE(f.fences->finished(stamp));
    const std::size_t records = f.order.records.size();
    CHECK(f.fences->fence(true).status == OrderStatus::lost);
    CHECK(f.fences->fence(false).native == 700);
    CHECK(f.order.records.size() == records);
    CHECK(f.fences->host_wait(stamp).status == OrderStatus::lost);
    CHECK(f.fences->host_wait(stamp).native == 700);
    CHECK_FALSE(f.fences->synchronize().done());
}

TEST_CASE("Fences: whoever waits for a slot notices that the context died") {
    Fixture f;
    f.fill_ring();
    f.order.on_pause = [&] {
        if (f.order.pauses == 2) f.order.query_answer = {OrderStatus::lost, 719};
    };
    const OrderResult result = f.fences->fence(true);
    CHECK(result.status == OrderStatus::lost);
    CHECK(result.native == 719);
}

TEST_CASE("Fences: a record or a wait that finds the context dead says so for good") {
    Fixture record;
    record.order.record_answer = {OrderStatus::lost, 709};
    CHECK(record.fences->fence(true).status == OrderStatus::lost);
    CHECK(record.fences->lost() == 709);
    Fixture wait;
    const Stamp stamp = wait.freed();
    wait.order.wait_answer = {OrderStatus::lost, 709};
    CHECK(wait.fences->barrier(stamp).status == OrderStatus::lost);
    CHECK_FALSE(wait.fences->settled(stamp, true));
    CHECK(wait.fences->lost() == 709);
}

TEST_CASE("Fences: the fence of a full ring does not hang on a query that fails") {
    Fixture f;
    f.fill_ring();
    f.order.query_answer = {OrderStatus::failed, 1};
    f.order.on_pause = [&] {
        // Without a way out of the loop the test ends it itself, and fails.
        if (f.order.pauses == 1000) f.order.query_answer = {OrderStatus::lost, 999};
    };
    CHECK(f.fences->fence(true).status == OrderStatus::failed);
    CHECK(f.fences->lost() == 0);
}
