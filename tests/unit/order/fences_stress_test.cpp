// Many threads free at once while a device finishes their work in any order.
#include "core/order/fences.h"

#include "rules_off.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

/// Work is a number; the device finishes numbers in random order. An event stands for all numbers
/// given out before its record.
class RandomDevice : public StreamOrder {
  public:
    explicit RandomDevice(unsigned seed) : random_(seed) {}

    std::uint64_t submit() {
        const std::lock_guard lock(mutex_);
        done_.push_back(false);
        return done_.size() - 1;
    }
    bool is_done(std::uint64_t work) {
        const std::lock_guard lock(mutex_);
        return done_[work];
    }
    /// True if whatever is submitted from now on starts after `work`.
    bool is_ordered(std::uint64_t work) {
        const std::lock_guard lock(mutex_);
        return done_[work] || work < waited_;
    }
    /// Finishes up to `count` pieces of work, most of them old.
    void advance(int count) {
        const std::lock_guard lock(mutex_);
        for (; count > 0 && first_open_ < done_.size(); --count) {
            const std::uint64_t span = std::min<std::uint64_t>(done_.size() - first_open_, 8);
            done_[first_open_ + random_() % span] = true;
            while (first_open_ < done_.size() && done_[first_open_])
                ++first_open_;
        }
    }

    OrderResult record(std::uint32_t event) override {
        std::this_thread::yield(); // between its number and its record another thread may pass
        {
            const std::lock_guard lock(mutex_);
            if (random_() % 50 == 0) return {OrderStatus::failed, 4};
            events_[event] = done_.size();
        }
        std::this_thread::yield();
        return {};
    }
    OrderResult query(std::uint32_t event) override {
        const std::lock_guard lock(mutex_);
        return {first_open_ >= events_[event] ? OrderStatus::done : OrderStatus::pending, 0};
    }
    OrderResult wait_on_device(std::uint32_t event) override {
        std::uint64_t until = 0;
        {
            const std::lock_guard lock(mutex_);
            if (random_() % 20 == 0) return {OrderStatus::failed, 4};
            until = events_[event];
        }
        std::this_thread::yield(); // whoever publishes before the call is over is found out
        const std::lock_guard lock(mutex_);
        waited_ = std::max(waited_, until);
        return {};
    }
    OrderResult synchronize() override { return {OrderStatus::failed, 0}; }
    void pause() override {
        advance(4);
        std::this_thread::yield();
    }
    bool several_streams() const override { return true; }

  private:
    std::mutex mutex_;
    std::mt19937 random_;
    std::vector<bool> done_;
    std::uint64_t first_open_ = 0; ///< everything below has finished
    std::uint64_t waited_ = 0;
    std::vector<std::uint64_t> events_ = std::vector<std::uint64_t>(Fences::kEvents, 0);
};

struct Outcome {
    int early = 0;     ///< called finished before it was
    int unordered = 0; ///< called settled with neither an end nor a barrier
    int finished = 0;
    int behind_barrier = 0;
};

Outcome run(unsigned seed) {
    RandomDevice device(seed);
    const auto fences = std::make_unique<Fences>(device, OrderLevel::fenced);
    std::atomic<int> early{0};
    std::atomic<int> unordered{0};
    std::atomic<int> finished{0};
    std::atomic<int> behind{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(seed + 1 + t);
            struct Freed {
                std::uint64_t work;
                Stamp stamp;
            };
            std::vector<Freed> limbo;
            const auto look = [&](const Freed& freed) {
                if (fences->finished(freed.stamp)) {
                    ++(device.is_done(freed.work) ? finished : early);
                    return true;
                }
                if (fences->settled(freed.stamp, true)) {
                    ++(device.is_ordered(freed.work) ? behind : unordered);
                    return true;
                }
                return false;
            };
            for (int i = 0; i < 3000; ++i) {
                const std::uint64_t work = device.submit();
                const Stamp stamp = fences->stamp();
                if (fences->fence(true).done()) limbo.push_back({work, stamp});
                if (random() % 4 == 0) device.advance(static_cast<int>(random() % 8));
                if (random() % 8 == 0) fences->poll();
                if (random() % 64 == 0 && !limbo.empty()) fences->barrier(limbo.front().stamp);
                if (random() % 64 == 0) fences->barrier_behind_all();
                if (random() % 128 == 0 && !limbo.empty()) {
                    if (fences->host_wait(limbo.front().stamp).done() &&
                        !device.is_done(limbo.front().work)) {
                        ++early;
                    }
                }
                std::erase_if(limbo, look);
            }
            for (const Freed& freed : limbo) {
                fences->host_wait(freed.stamp);
                look(freed);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    return {early.load(), unordered.load(), finished.load(), behind.load()};
}

} // namespace

TEST_CASE("Fences: threads that free at once never find anything settled too early") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    const Outcome outcome = run(seed);
    CHECK(outcome.early == 0);
    CHECK(outcome.unordered == 0);
    CHECK(outcome.finished > 100);
    CHECK(outcome.behind_barrier > 100);
}

TEST_CASE("Fences: the stress sees what each rule of the numbers is for") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    SECTION("numbering") {
        const RulesOff off{Rule::numbering};
        const Outcome outcome = run(seed);
        CHECK(outcome.early + outcome.unordered > 0);
    }
    SECTION("barrier") {
        const RulesOff off{Rule::barrier};
        CHECK(run(seed).unordered > 0);
    }
}
