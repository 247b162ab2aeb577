// What a pool's memory_stats() says at every step of a program, beside what PyTorch's allocator
// says by its rules: each expectation is written down by hand. Segments are those that this pool
// takes.
#include "core/memory_stats.h"

#include "pool_fixture.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

constexpr auto kMi = static_cast<std::int64_t>(kMiB);

std::map<std::string, std::int64_t> values(DevicePool& pool) {
    std::map<std::string, std::int64_t> all;
    const MemoryStats stats = pool.memory_stats();
    for_each_memory_stat(stats,
                         [&all](const char* name, std::int64_t value) { all[name] = value; });
    return all;
}

/// What is expected: each step says by how much the figures change, as PyTorch's calls do.
class Expected {
  public:
    Expected() { now_["max_split_size"] = -1; }

    /// `family`, of requests or segments of the class, rises or falls by so much.
    void change(const std::string& family, bool small, std::int64_t by) {
        for (const std::string pool : {"all", small ? "small_pool" : "large_pool"})
            gauge(family + "." + pool, by);
    }
    void gauge(const std::string& name, std::int64_t by) {
        std::int64_t& current = now_[name + ".current"];
        current += by;
        now_[name + (by > 0 ? ".allocated" : ".freed")] += by > 0 ? by : -by;
        now_[name + ".peak"] = std::max(now_[name + ".peak"], current);
    }
    std::int64_t& operator[](const std::string& name) { return now_[name]; }

    void segment(bool small, std::int64_t bytes, std::int64_t sign) {
        change("segment", small, sign);
        change("reserved_bytes", small, sign * bytes);
        ++now_[sign > 0 ? "num_device_alloc" : "num_device_free"];
    }
    void active(bool small, std::int64_t bytes, std::int64_t asked, std::int64_t sign) {
        change("active", small, sign);
        change("active_bytes", small, sign * bytes);
        change("requested_bytes", small, sign * asked);
    }
    void live(bool small, std::int64_t bytes, std::int64_t sign) {
        change("allocation", small, sign);
        change("allocated_bytes", small, sign * bytes);
    }
    void split(bool small, std::int64_t blocks, std::int64_t bytes) {
        if (blocks != 0) change("inactive_split", small, blocks);
        if (bytes != 0) change("inactive_split_bytes", small, bytes);
    }
    /// Both at once, as where nothing has to be waited for.
    void took(bool small, std::int64_t bytes, std::int64_t asked) {
        live(small, bytes, 1);
        active(small, bytes, asked, 1);
    }
    void gave(bool small, std::int64_t bytes, std::int64_t asked) {
        live(small, bytes, -1);
        active(small, bytes, asked, -1);
    }

    void check(DevicePool& pool) {
        for (const auto& [name, value] : values(pool)) {
            INFO(name);
            CHECK(value == now_[name]);
        }
    }

  private:
    std::map<std::string, std::int64_t> now_;
};

Options no_slack() {
    Options options = pool_options();
    options.slack_mb = options.slack_percent = 0;
    return options;
}

} // namespace

TEST_CASE("memory_stats: the names are those of torch.cuda.memory_stats()") {
    std::set<std::string> expected{"num_alloc_retries", "num_ooms",        "num_sync_all_streams",
                                   "num_device_alloc",  "num_device_free", "max_split_size",
                                   "num_oom_rejections"};
    for (const char* quantity : {"current", "peak", "allocated", "freed"}) {
        for (const char* family :
             {"allocation", "segment", "active", "inactive_split", "allocated_bytes",
              "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"}) {
            for (const char* pool : {"all", "large_pool", "small_pool"})
                expected.insert(std::string(family) + "." + pool + "." + quantity);
        }
        for (const char* family : {"oversize_allocations", "oversize_segments"})
            expected.insert(std::string(family) + "." + quantity);
    }
    REQUIRE(expected.size() == 123);
    std::set<std::string> names;
    std::size_t count = 0;
    MemoryStats stats;
    for_each_memory_stat(stats, [&](const char* name, std::int64_t& value) {
        names.insert(name);
        value = 1;
        ++count;
    });
    CHECK(count == kMemoryStats);
    CHECK(names == expected);
    CHECK(stats.requested_bytes[kSmallClass].freed == 1);
    std::string longest;
    for_each_memory_stat(
        stats,
        [&](const char* name, std::int64_t) {
            if (std::string(name).size() > longest.size()) longest = name;
        },
        "63");
    CHECK(longest == "63.inactive_split_bytes.large_pool.allocated"); // whole, in 47 bytes
}

TEST_CASE("memory_stats: splits, merges and reuse, step by step") {
    PoolFixture f(OrderLevel::ordered, no_slack());
    Expected is;
    is.check(*f.pool);

    Block* const a = f.alloc(1000); // 1024 of a segment of 2 MiB: the rest is a split piece
    is.segment(true, 2 * kMi, 1);
    is.took(true, 1024, 1000);
    is.split(true, 1, 2 * kMi - 1024);
    is.check(*f.pool);

    Block* const b = f.alloc(kMiB); // the largest small request, from the same piece
    is.took(true, kMi, kMi);
    is.split(true, 0, -kMi);
    is.check(*f.pool);

    Block* const c = f.alloc(kMiB + 1); // the smallest large one: 1.5 KiB short of its 2 MiB
    is.segment(false, 2 * kMi, 1);
    const auto c_bytes = static_cast<std::int64_t>(c->size);
    CHECK(c_bytes == kMi + 512);
    is.took(false, c_bytes, kMi + 1);
    is.split(false, 1, 2 * kMi - c_bytes);
    is.check(*f.pool);

    f.free(a); // below b: a second piece of its own
    is.gave(true, 1024, 1000);
    is.split(true, 1, 1024);
    is.check(*f.pool);

    CHECK(f.alloc(900) == a); // reuse
    is.took(true, 1024, 900);
    is.split(true, -1, -1024);
    is.check(*f.pool);

    f.free(b); // merges with the piece above it
    is.gave(true, kMi, kMi);
    is.split(true, 0, kMi);
    is.check(*f.pool);

    f.free(a); // nothing is active in the segment any more: it is whole, not split
    is.gave(true, 1024, 900);
    is.split(true, -1, -(2 * kMi - 1024));
    is.check(*f.pool);

    f.free(c);
    is.gave(false, c_bytes, kMi + 1);
    is.split(false, -1, -(2 * kMi - c_bytes));
    is.check(*f.pool);

    CHECK(f.pool->trim() == 4 * kMiB);
    is.segment(true, 2 * kMi, -1);
    is.segment(false, 2 * kMi, -1);
    is.check(*f.pool);
}

TEST_CASE("memory_stats: what is freed stays active until its work has finished") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Expected is;
    Block* const a = f.alloc(4 * kMiB - 7);
    is.segment(false, 4 * kMi, 1);
    is.took(false, 4 * kMi, 4 * kMi - 7);
    is.check(*f.pool);
    f.use(a);
    f.free(a, FreeKind::does_not_wait);
    is.live(false, 4 * kMi, -1);
    is.check(*f.pool);
    Block* const b = f.alloc(4 * kMiB); // so a second one, beside it: the peak of active memory
    REQUIRE(b != a);
    is.segment(false, 4 * kMi, 1);
    is.took(false, 4 * kMi, 4 * kMi);
    is.check(*f.pool);
    f.device.finish_all();
    CHECK(f.alloc(4 * kMiB) == a); // settled first, then live again
    is.active(false, 4 * kMi, 4 * kMi - 7, -1);
    is.took(false, 4 * kMi, 4 * kMi);
    is.check(*f.pool);
    f.free(a, FreeKind::waits_on_host); // settled at once
    is.gave(false, 4 * kMi, 4 * kMi);
    is.check(*f.pool);
    f.device.capture_open = true;
    f.set_aside(b); // beside a capture: active as well
    is.live(false, 4 * kMi, -1);
    is.check(*f.pool);
    f.device.capture_open = false;
    f.device.finish_all();
    f.wind_up();
    is.active(false, 4 * kMi, 4 * kMi, -1);
    is.segment(false, 4 * kMi, -1);
    is.segment(false, 4 * kMi, -1);
    is.check(*f.pool);
}

TEST_CASE("memory_stats: retries, waits for everything, and memory that ran out") {
    PoolFixture f(OrderLevel::fenced, pool_options(), 64 * kMiB); // grows rather than waits
    f.device.several = true;                                      // no barrier instead of the wait
    Expected is;
    Block* const a = f.alloc(40 * kMiB);
    is.segment(false, 40 * kMi, 1);
    is.took(false, 40 * kMi, 40 * kMi);
    CHECK(f.alloc(60 * kMiB) == nullptr);
    CHECK(f.status == PoolStatus::out_of_memory);
    ++is["num_ooms"]; // nothing was cached, so nothing was tried again
    is.check(*f.pool);
    f.use(a);
    f.free(a);
    is.live(false, 40 * kMi, -1);
    is.check(*f.pool);
    REQUIRE(f.alloc(60 * kMiB) != nullptr); // its segment is waited for and given back
    ++is["num_sync_all_streams"];
    ++is["num_alloc_retries"];
    is.active(false, 40 * kMi, 40 * kMi, -1);
    is.segment(false, 40 * kMi, -1);
    is.segment(false, 60 * kMi, 1);
    is.took(false, 60 * kMi, 60 * kMi);
    is.check(*f.pool);
}

TEST_CASE("memory_stats: waits for all that was freed") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const a = f.alloc(4 * kMiB);
    f.use(a);
    f.free(a);
    CHECK(f.pool->memory_stats().num_sync_all_streams == 0);
    f.pool->release_all();
    CHECK(f.pool->memory_stats().num_sync_all_streams == 1);
    f.pool->release_all(); // nothing is left to wait for
    CHECK(f.pool->memory_stats().num_sync_all_streams == 1);
}

TEST_CASE("memory_stats: oversize requests and segments") {
    Options options = no_slack();
    options.max_split_size_mb = 32;
    PoolFixture f(OrderLevel::ordered, options);
    Expected is;
    is["max_split_size"] = 32 * kMi;
    Block* const a = f.alloc(40 * kMiB);
    is.segment(false, 40 * kMi, 1);
    is.took(false, 40 * kMi, 40 * kMi);
    is.gauge("oversize_allocations", 1);
    is.gauge("oversize_segments", 1);
    is.check(*f.pool);
    f.alloc(12 * kMiB);
    is.segment(false, 12 * kMi, 1);
    is.took(false, 12 * kMi, 12 * kMi);
    is.check(*f.pool);
    f.free(a);
    is.gave(false, 40 * kMi, 40 * kMi);
    is.gauge("oversize_allocations", -1);
    is.check(*f.pool);
    f.pool->trim();
    is.segment(false, 40 * kMi, -1);
    is.gauge("oversize_segments", -1);
    is.check(*f.pool);
}

TEST_CASE("memory_stats: a context that ends takes everything with it") {
    PoolFixture f(OrderLevel::fenced, no_slack());
    Block* const a = f.alloc(4 * kMiB);
    f.alloc(100);
    f.use(a);
    f.free(a);
    f.pool->kill();
    f.pool->bury();
    const MemoryStats stats = f.pool->memory_stats();
    for (const auto& set : memory_stat_names::kSets) {
        INFO(set.name);
        for (const auto& row : memory_stat_names::kClasses)
            CHECK((stats.*set.member)[row.which].current == 0);
    }
    CHECK(stats.active_bytes[kBothClasses].peak == 4 * kMi + 512);
}
