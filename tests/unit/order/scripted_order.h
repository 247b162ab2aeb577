#pragma once

#include "core/order/stream_order.h"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

/// A StreamOrder whose answers a test writes down. One thread only. Hooks run inside a call, before
/// it takes effect, so that a test can put another thread's steps in between.
class ScriptedOrder : public cachealloc::StreamOrder {
  public:
    using Status = cachealloc::OrderStatus;
    using Result = cachealloc::OrderResult;

    std::vector<std::uint32_t> records; ///< events, in the order in which they took effect
    std::vector<std::uint32_t> queries;
    std::vector<std::uint32_t> waits;
    std::uint64_t synchronizations = 0;
    std::uint64_t pauses = 0;

    Result record_answer; ///< done unless a test says otherwise
    Result wait_answer;
    Result query_answer{Status::pending, 0}; ///< for events without an answer of their own
    Result synchronize_answer;
    std::map<std::uint32_t, Result> answers; ///< query() by event; a record() erases it

    std::function<void(std::uint32_t)> on_record;
    std::function<void(std::uint32_t)> on_wait;
    std::function<void()> on_pause;

    void finish(std::uint32_t event) { answers[event] = {}; }
    void finish_all() {
        query_answer = {};
        answers.clear();
    }

    Result record(std::uint32_t event) override {
        if (const auto hook = on_record) hook(event); // a copy: a hook may take itself out
        if (record_answer.done()) {
            records.push_back(event);
            answers.erase(event);
        }
        return record_answer;
    }
    Result query(std::uint32_t event) override {
        queries.push_back(event);
        const auto found = answers.find(event);
        return found != answers.end() ? found->second : query_answer;
    }
    Result wait_on_device(std::uint32_t event) override {
        if (const auto hook = on_wait) hook(event); // a copy: a hook may take itself out
        if (wait_answer.done()) waits.push_back(event);
        return wait_answer;
    }
    Result synchronize() override {
        ++synchronizations;
        return synchronize_answer;
    }
    void pause() override {
        ++pauses;
        if (const auto hook = on_pause) hook(); // a copy: a hook may take itself out
    }
    bool several_streams() const override { return true; }
};
