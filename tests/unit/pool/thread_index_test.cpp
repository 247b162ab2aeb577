#include "core/pool/thread_index.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

/// The indices of `count` threads that are all alive at once.
std::vector<std::uint32_t> indices_of(std::size_t count) {
    std::vector<std::uint32_t> indices(count);
    std::atomic<std::size_t> arrived{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            indices[i] = thread_index();
            ++arrived;
            while (arrived.load() < count)
                std::this_thread::yield();
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    return indices;
}

} // namespace

TEST_CASE("thread_index: stable in a thread, unique among threads alive") {
    const std::uint32_t mine = thread_index();
    CHECK(mine != kSharedThread);
    CHECK(mine < kThreads);
    CHECK(thread_index() == mine);
    std::vector<std::uint32_t> indices = indices_of(20);
    indices.push_back(mine);
    CHECK(std::set<std::uint32_t>(indices.begin(), indices.end()).size() == indices.size());
    CHECK(*std::max_element(indices.begin(), indices.end()) < thread_index_limit());
}

TEST_CASE("thread_index: an index is used again after its thread's end") {
    const std::uint32_t mine = thread_index();
    std::set<std::uint32_t> seen;
    for (int i = 0; i < 50; ++i) {
        std::thread([&] { seen.insert(thread_index()); }).join();
    }
    CHECK(seen.size() == 1);
    CHECK(seen.count(mine) == 0);
}

namespace {

std::uint32_t g_late_index = 0;

/// Made before the thread asks for its index, so destroyed after the index was given back.
struct AsksAtEnd {
    bool armed = false;
    ~AsksAtEnd() {
        if (armed) g_late_index = thread_index();
    }
};

thread_local AsksAtEnd t_asks_at_end;

} // namespace

TEST_CASE("thread_index: destructors that run after the index was given back share") {
    g_late_index = ~0U;
    std::uint32_t own = 0;
    std::thread([&] {
        t_asks_at_end.armed = true;
        own = thread_index();
    }).join();
    CHECK(own != kSharedThread);
    CHECK(g_late_index == kSharedThread);
}

TEST_CASE("thread_index: threads beyond the last index share one, and it comes back") {
    const std::uint32_t mine = thread_index();
    constexpr std::size_t kMany = kThreads + 40;
    const std::vector<std::uint32_t> indices = indices_of(kMany);
    std::set<std::uint32_t> own;
    std::size_t shared = 0;
    for (const std::uint32_t index : indices) {
        REQUIRE(index < kThreads);
        if (index == kSharedThread) {
            ++shared;
        } else {
            REQUIRE(own.insert(index).second);
        }
    }
    CHECK(own.count(mine) == 0);
    CHECK(own.size() == kThreads - 2); // without the shared one and this thread's
    CHECK(shared == kMany - own.size());
    CHECK(thread_index_limit() == kThreads);
    const std::vector<std::uint32_t> later = indices_of(10);
    CHECK(std::count(later.begin(), later.end(), kSharedThread) == 0);
}
