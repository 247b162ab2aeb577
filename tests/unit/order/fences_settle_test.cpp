// What fences settle and how one waits for them. Their numbers and their ring: fences_test.cpp.
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
};

} // namespace

TEST_CASE("Fences: a barrier is published only after it succeeded") {
    Fixture f;
    const Stamp first = f.freed();
    const std::uint32_t first_event = f.last_event();
    const Stamp second = f.freed();
    f.order.wait_answer = {OrderStatus::refused, 0};
    CHECK(f.fences->barrier(first).status == OrderStatus::refused);
    CHECK_FALSE(f.fences->settled(first, true));
    f.order.wait_answer = {OrderStatus::failed, 4};
    CHECK(f.fences->barrier(first).native == 4);
    CHECK_FALSE(f.fences->settled(first, true));
    f.order.wait_answer = {};
    bool early = true;
    f.order.on_wait = [&](std::uint32_t) { early = f.fences->settled(first, true); };
    CHECK(f.fences->barrier(first).done());
    CHECK_FALSE(early);
    CHECK(f.fences->settled(first, true));
    CHECK_FALSE(f.fences->finished(first));
    CHECK_FALSE(f.fences->settled(first, false));
    CHECK_FALSE(f.fences->settled(second, true)); // the oldest fence that does, no younger one
    CHECK(f.order.waits == std::vector<std::uint32_t>{first_event});
    CHECK(f.fences->barrier(first).done()); // settled already: no second call
    CHECK(f.order.waits.size() == 1);
}

TEST_CASE("Fences: a barrier behind all settles everything with one wait") {
    Fixture f;
    const Stamp first = f.freed();
    const Stamp second = f.freed();
    const Stamp later = f.fences->stamp();
    CHECK(f.fences->barrier_behind_all().done());
    CHECK(f.order.waits == std::vector<std::uint32_t>{f.last_event()});
    CHECK(f.fences->settled(first, true));
    CHECK(f.fences->settled(second, true));
    CHECK_FALSE(f.fences->settled(later, true));
}

TEST_CASE("Fences: a barrier behind all stands behind no fence of a free that does not wait") {
    // What is before such a free may natively be waiting for what comes after it.
    Fixture f;
    CHECK(f.fences->fence(false).done());
    CHECK(f.fences->barrier_behind_all().done());
    CHECK(f.order.waits.empty());
    const Stamp stamp = f.freed();
    const std::uint32_t event = f.last_event();
    CHECK(f.fences->fence(false).done());
    CHECK(f.fences->barrier_behind_all().done());
    CHECK(f.order.waits == std::vector<std::uint32_t>{event});
    CHECK(f.fences->settled(stamp, true));
    f.order.finish_all();
    while (f.fences->poll()) {
    }
    CHECK(f.fences->barrier_behind_all().done());
    CHECK(f.order.waits.size() == 1);
}

TEST_CASE("Fences: a stamp is covered once a fence behind it was recorded") {
    Fixture f;
    const Stamp stamp = f.fences->stamp();
    CHECK_FALSE(f.fences->covered(stamp));
    f.order.record_answer = {OrderStatus::refused, 0};
    f.fences->fence(false);
    CHECK_FALSE(f.fences->covered(stamp));
    f.order.record_answer = {};
    f.freed();
    CHECK(f.fences->covered(stamp));
    CHECK_FALSE(f.fences->covered(f.fences->stamp()));
    f.order.finish_all();
    while (f.fences->poll()) {
    }
    CHECK(f.fences->covered(stamp));
}

TEST_CASE("Fences: no barrier is needed for what has finished") {
    Fixture f;
    const Stamp stamp = f.freed();
    f.order.finish_all();
    REQUIRE(f.fences->poll());
    CHECK(f.fences->barrier(stamp).done());
    CHECK(f.fences->barrier_behind_all().done());
    CHECK(f.order.waits.empty());
}

TEST_CASE("Fences: at level finished a barrier settles nothing") {
    Fixture f;
    const Stamp stamp = f.freed();
    REQUIRE(f.fences->barrier(stamp).done());
    REQUIRE(f.fences->settled(stamp, true));
    f.fences->lower(OrderLevel::finished);
    CHECK_FALSE(f.fences->settled(stamp, true));
    {
        const RulesOff off{Rule::finished_level};
        CHECK(f.fences->settled(stamp, true));
    }
    f.order.finish_all();
    REQUIRE(f.fences->poll());
    CHECK(f.fences->settled(stamp, true));
}

TEST_CASE("Fences: levels only ever go down the list") {
    Fixture f(OrderLevel::ordered);
    f.fences->lower(OrderLevel::fenced);
    CHECK(f.fences->level() == OrderLevel::fenced);
    f.fences->lower(OrderLevel::ordered);
    CHECK(f.fences->level() == OrderLevel::fenced);
    f.fences->lower(OrderLevel::wait);
    f.fences->lower(OrderLevel::finished);
    CHECK(f.fences->level() == OrderLevel::wait);
}

TEST_CASE("Fences: a host wait asks only the oldest fence that covers the stamp") {
    Fixture f;
    f.freed();
    const Stamp stamp = f.freed();
    const std::uint32_t event = f.last_event();
    f.freed();
    f.order.on_pause = [&] {
        if (f.order.pauses == 4) f.order.finish(event);
    };
    CHECK(f.fences->host_wait(stamp).done());
    CHECK(f.fences->finished(stamp));
    CHECK(f.order.pauses == 4);
    CHECK(std::set<std::uint32_t>(f.order.queries.begin(), f.order.queries.end()) ==
          std::set<std::uint32_t>{event});
    const std::size_t queries = f.order.queries.size();
    CHECK(f.fences->host_wait(stamp).done());
    CHECK(f.order.queries.size() == queries);
}

TEST_CASE("Fences: a host wait gives up on a query that fails") {
    Fixture f;
    const Stamp stamp = f.freed();
    f.order.query_answer = {OrderStatus::failed, 1};
    CHECK(f.fences->host_wait(stamp).status == OrderStatus::failed);
    CHECK_FALSE(f.fences->finished(stamp));
}

TEST_CASE("Fences: a poll asks at most twice, and halves what is outstanding") {
    Fixture f;
    CHECK_FALSE(f.fences->poll());
    CHECK(f.order.queries.empty());
    for (int i = 0; i < 1000; ++i)
        f.freed();
    CHECK_FALSE(f.fences->poll());
    CHECK(f.order.queries.size() == 1); // the oldest has not finished, so none has
    CHECK(f.order.queries[0] == f.order.records.front());
    f.order.queries.clear();
    f.order.finish_all();
    std::size_t polls = 0;
    while (f.fences->poll()) {
        ++polls;
        REQUIRE(f.order.queries.size() <= 2 * polls);
    }
    CHECK(f.fences->outstanding() == 0);
    CHECK(polls <= 11); // log2 of 1000, rounded up, and one
}

TEST_CASE("Fences: younger fences are counted from the one that covers the stamp") {
    Fixture f;
    const Stamp stamp = f.freed();
    CHECK(f.fences->younger_than(stamp) == 0);
    f.freed();
    f.freed();
    CHECK(f.fences->younger_than(stamp) == 2);
    CHECK(f.fences->younger_than(f.fences->stamp()) == 0);
}

TEST_CASE("Fences: after a synchronisation every stamp read before is finished") {
    for (const OrderLevel level : {OrderLevel::ordered, OrderLevel::fenced, OrderLevel::wait}) {
        Fixture f(level);
        f.order.on_pause = [&] { f.order.finish_all(); };
        const Stamp first = f.fences->stamp();
        if (level != OrderLevel::wait) f.freed();
        const Stamp second = f.fences->stamp();
        CHECK(f.fences->synchronize().done());
        CHECK(f.fences->finished(first));
        CHECK(f.fences->finished(second));
        CHECK_FALSE(f.fences->finished(f.fences->stamp()));
        CHECK(f.order.synchronizations == (level == OrderLevel::wait ? 1U : 0U));
    }
}

TEST_CASE("Fences: a synchronisation that does not happen settles nothing") {
    for (const OrderStatus status :
         {OrderStatus::refused, OrderStatus::failed, OrderStatus::lost}) {
        for (const OrderLevel level : {OrderLevel::fenced, OrderLevel::wait}) {
            Fixture f(level);
            f.order.record_answer = f.order.synchronize_answer = {status, 3};
            const Stamp stamp = f.fences->stamp();
            const OrderResult result = f.fences->synchronize();
            CHECK(result.status == status);
            CHECK(result.native == 3);
            CHECK_FALSE(f.fences->finished(stamp));
            CHECK(f.fences->lost() == (status == OrderStatus::lost ? 3 : 0));
        }
    }
}
