// A platform that costs nothing, under which the core's own work can be measured: device addresses
// are made up, and everything submitted has always finished.
#pragma once

#include "core/device_pool.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace cachealloc::bench {

/// Hands out ever higher addresses and takes every one back. Thread-safe.
class NullSource final : public MemorySource {
  public:
    SourceResult allocate(std::uint64_t bytes) override {
        const std::uint64_t whole = (bytes + kGranule - 1) / kGranule * kGranule;
        return {SourceStatus::done, next_.fetch_add(whole, std::memory_order_relaxed), 0};
    }
    SourceResult release(DeviceAddress, std::uint64_t) override { return {}; }
    std::uint64_t total_bytes() const override { return 1024 * kGiB; }

  private:
    std::atomic<DeviceAddress> next_{std::uint64_t{0x7f} << 32};
};

/// Every event has finished as soon as it is recorded. Thread-safe.
class NullOrder final : public StreamOrder {
  public:
    OrderResult record(std::uint32_t) override { return {}; }
    OrderResult query(std::uint32_t) override { return {}; }
    OrderResult wait_on_device(std::uint32_t) override { return {}; }
    OrderResult synchronize() override { return {}; }
    void pause() override { std::this_thread::yield(); }
    bool several_streams() const override { return false; }
};

/// A pool on that platform, with the map and the arena that a process has once. Thread-safe.
class NullPool {
  public:
    explicit NullPool(OrderLevel level)
        : pool_(std::make_unique<DevicePool>(*map_, *arena_, source_, order_, level, options())) {}

    /// Ends the process if the pool does not serve the request: a benchmark has no use for less.
    DeviceAddress allocate(std::uint64_t bytes) {
        const PoolResult result = pool_->allocate(bytes);
        if (result.status != PoolStatus::done) give_up("allocate");
        return result.address;
    }

    /// What the shim does with a pointer: finds its block, then frees it.
    void free(DeviceAddress address) {
        Block* const block = map_->find(address);
        if (block == nullptr ||
            pool_->free(block, address, FreeKind::waits_unnoticed).status != PoolStatus::done) {
            give_up("free");
        }
    }

  private:
    static Options options() {
        Options options;
        options.free_mode = FreeMode::async;
        return options;
    }

    [[noreturn]] static void give_up(const char* what) {
        std::fprintf(stderr, "null pool: %s failed\n", what);
        std::exit(1);
    }

    NullSource source_;
    NullOrder order_;
    std::unique_ptr<AddressMap> map_ = std::make_unique<AddressMap>();
    std::unique_ptr<BlockArena> arena_ = std::make_unique<BlockArena>();
    std::unique_ptr<DevicePool> pool_;
};

/// xorshift64*: the same numbers on every machine.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1Du;
    }

    /// A size between 256 B and 8 MiB, every power of two equally likely, as programs ask.
    std::uint64_t size() {
        const std::uint64_t random = next();
        const std::uint64_t low = std::uint64_t{256} << (random % 15);
        return low + (random >> 32) % low;
    }

  private:
    std::uint64_t state_;
};

/// `kLive` live blocks of random sizes; each step frees a random one and allocates a new one.
/// One thread's; the pool is shared.
class Churn {
  public:
    static constexpr std::size_t kLive = 1000;

    Churn(NullPool& pool, std::uint64_t seed) : pool_(pool), random_(seed) {
        for (DeviceAddress& address : live_)
            address = pool_.allocate(random_.size());
    }
    ~Churn() {
        for (const DeviceAddress address : live_)
            pool_.free(address);
    }
    Churn(const Churn&) = delete;
    Churn& operator=(const Churn&) = delete;

    void step() {
        DeviceAddress& victim = live_[random_.next() % kLive];
        pool_.free(victim);
        victim = pool_.allocate(random_.size());
    }

  private:
    NullPool& pool_;
    Random random_;
    DeviceAddress live_[kLive];
};

} // namespace cachealloc::bench
