#include "core/order/stream_events.h"

#include "rules_off.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

using namespace cachealloc;

namespace {

/// Notes what is asked of it.
struct Order : StreamOrder {
    std::vector<std::pair<StreamHandle, std::uint32_t>> records;
    std::vector<std::pair<StreamHandle, std::uint32_t>> waits;
    std::vector<std::uint32_t> queries;
    OrderResult answer;

    OrderResult record(std::uint32_t) override { return answer; }
    OrderResult query(std::uint32_t event) override {
        queries.push_back(event);
        return answer;
    }
    OrderResult wait_on_device(std::uint32_t) override { return answer; }
    OrderResult record_on(StreamHandle stream, std::uint32_t event) override {
        records.emplace_back(stream, event);
        return answer;
    }
    OrderResult wait_on_stream(StreamHandle stream, std::uint32_t event) override {
        waits.emplace_back(stream, event);
        return answer;
    }
    OrderResult synchronize() override { return answer; }
    void pause() override {}
    bool several_streams() const override { return false; }
};

struct Fixture {
    Order order;
    std::unique_ptr<Fences> fences = std::make_unique<Fences>(order, OrderLevel::fenced);
    std::unique_ptr<StreamEvents> events = std::make_unique<StreamEvents>(*fences);
};

} // namespace

TEST_CASE("StreamEvents: each event has one owner, the latest given back comes first") {
    Fixture f;
    std::set<std::uint32_t> taken;
    for (std::uint32_t i = 0; i < StreamEvents::kEvents; ++i)
        taken.insert(f.events->take());
    CHECK(taken.size() == StreamEvents::kEvents);
    CHECK(*taken.rbegin() == StreamEvents::kEvents - 1);
    CHECK(f.events->take() == StreamEvents::kNone);
    f.events->give_back(5);
    f.events->give_back(9);
    CHECK(f.events->take() == 9);
    CHECK(f.events->take() == 5);
    CHECK(f.events->take() == StreamEvents::kNone);
}

TEST_CASE("StreamEvents: outside the fences' ring") {
    Fixture f;
    CHECK(f.events->record(7, 0).done());
    CHECK(f.events->ask(0) == OrderStatus::done);
    CHECK(f.events->wait(8, 3).done());
    CHECK(f.order.records.front() == std::pair<StreamHandle, std::uint32_t>{7, Fences::kEvents});
    CHECK(f.order.queries.front() == Fences::kEvents);
    CHECK(f.order.waits.front() == std::pair<StreamHandle, std::uint32_t>{8, Fences::kEvents + 3});
    CHECK_FALSE(f.fences->finished(f.fences->stamp())); // it says nothing of other work
    CHECK_FALSE(f.fences->settled(f.fences->stamp(), true));
}

TEST_CASE("StreamEvents: answers are passed on, a lost context is remembered") {
    Fixture f;
    for (const OrderStatus status :
         {OrderStatus::pending, OrderStatus::refused, OrderStatus::failed}) {
        f.order.answer = {status, 2};
        CHECK(f.events->record(7, 0).status == status);
        CHECK(f.events->ask(0) == status);
        CHECK(f.events->wait(7, 0).status == status);
        CHECK(f.fences->lost() == 0);
    }
    f.order.answer = {OrderStatus::lost, 700};
    CHECK(f.events->ask(0) == OrderStatus::lost);
    CHECK(f.fences->lost() == 700);
}

TEST_CASE("StreamEvents: the rule switched off waits for nothing") {
    Fixture f;
    const RulesOff off({Rule::stream_event});
    f.order.answer = {OrderStatus::pending, 0};
    CHECK(f.events->ask(0) == OrderStatus::done);
    CHECK(f.events->wait(7, 0).done());
    CHECK(f.order.waits.empty());
}
