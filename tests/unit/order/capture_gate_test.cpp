#include "core/order/capture_gate.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

using namespace cachealloc;

TEST_CASE("CaptureGate: open unless a capture is announced, which may be nested") {
    CaptureGate gate;
    REQUIRE(gate.enter());
    REQUIRE(gate.enter());
    gate.leave();
    gate.leave();
    gate.begin();
    CHECK(gate.open() == 1);
    CHECK_FALSE(gate.enter());
    gate.begin();
    CHECK(gate.open() == 2);
    gate.end();
    CHECK_FALSE(gate.enter());
    gate.end();
    CHECK(gate.open() == 0);
    REQUIRE(gate.enter());
    gate.leave();
    {
        const GatePass pass(gate);
        CHECK(pass.inside());
    }
    gate.begin(); // returns: the pass was given back
    {
        const GatePass pass(gate);
        CHECK_FALSE(pass.inside());
    }
    gate.end();
}

TEST_CASE("CaptureGate: begin waits for whoever is inside") {
    CaptureGate gate;
    std::atomic<bool> began{false};
    REQUIRE(gate.enter());
    std::thread capturer([&] {
        gate.begin();
        began = true;
    });
    while (gate.open() == 0)
        std::this_thread::yield();
    CHECK_FALSE(gate.enter()); // announced: nobody new
    CHECK_FALSE(began.load());
    gate.leave();
    capturer.join();
    CHECK(began.load());
    gate.end();
}

TEST_CASE("CaptureGate: nobody is ever inside while a capture runs") {
    CaptureGate gate;
    std::atomic<int> inside{0};
    std::atomic<int> capturing{0};
    std::atomic<int> clashes{0};
    std::atomic<int> entered{0};
    std::atomic<int> captures{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
            while (!stop.load()) {
                const GatePass pass(gate);
                if (!pass.inside()) {
                    std::this_thread::yield();
                    continue;
                }
                ++inside;
                if (capturing.load() != 0) ++clashes;
                if (entered.fetch_add(1) % 16 == 0) std::this_thread::yield();
                if (capturing.load() != 0) ++clashes;
                --inside;
            }
        });
    }
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 3000 || (entered.load() < 1000 && i < 1000000); ++i) {
                gate.begin();
                ++capturing;
                if (inside.load() != 0) ++clashes;
                if (i % 16 == 0) std::this_thread::yield();
                if (inside.load() != 0) ++clashes;
                --capturing;
                gate.end();
                ++captures;
                if (i % 4 == 0) std::this_thread::yield();
            }
            stop = true;
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(clashes.load() == 0);
    CHECK(captures.load() >= 6000);
    CHECK(entered.load() > 0);
    CHECK(gate.open() == 0);
}
