#pragma once

#include "core/device_pool.h"

#include "pool_ledger.h"
#include "simulated_device.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>

inline cachealloc::Options pool_options(cachealloc::FreeMode mode = cachealloc::FreeMode::async) {
    cachealloc::Options options;
    options.free_mode = mode;
    options.large_segment_size_mb = 2; // every large request has a segment of its own
    return options;
}

/// A pool on a simulated device. Programs go through alloc() and free(), which tell the oracle and
/// the ledger of what the pool says to its observer.
struct PoolFixture {
    SimulatedDevice device;
    PoolLedger ledger;
    std::unique_ptr<cachealloc::AddressMap> map = std::make_unique<cachealloc::AddressMap>();
    std::unique_ptr<cachealloc::BlockArena> arena = std::make_unique<cachealloc::BlockArena>();
    std::unique_ptr<cachealloc::DevicePool> pool;
    const bool sync; ///< frees that natively wait do so here

    explicit PoolFixture(cachealloc::OrderLevel level,
                         const cachealloc::Options& options = pool_options(),
                         std::uint64_t memory = cachealloc::kGiB, std::uint64_t seed = 1)
        : device(memory, seed), pool(std::make_unique<cachealloc::DevicePool>(
                                    *map, *arena, device, device, level, options, &ledger)),
          sync(options.free_mode == cachealloc::FreeMode::sync) {
        device.one_stream_ = level == cachealloc::OrderLevel::ordered;
    }
    ~PoolFixture() { CHECK(ledger.first_complaint() == ""); }
    PoolFixture(const PoolFixture&) = delete;
    PoolFixture& operator=(const PoolFixture&) = delete;

    cachealloc::OrderLevel level() const { return pool->fences().level(); }

    /// The block handed out, or null; the status is left in `status`.
    cachealloc::Block* alloc(std::uint64_t bytes) {
        const bool only_finished = level() >= cachealloc::OrderLevel::finished;
        const cachealloc::PoolResult result = pool->allocate(bytes);
        status = result.status;
        if (result.status != cachealloc::PoolStatus::done) return nullptr;
        cachealloc::Block* const block = map->find(result.address);
        if (block == nullptr) return nullptr;
        ledger.handed_out(*block);
        device.handed_out(block->address, block->size, only_finished);
        return block;
    }
    cachealloc::PoolResult free(cachealloc::Block* block,
                                cachealloc::FreeKind kind = cachealloc::FreeKind::waits_unnoticed) {
        const cachealloc::DeviceAddress address = block->address;
        const std::uint64_t size = block->size;
        const bool only_finished = kind == cachealloc::FreeKind::does_not_wait;
        device.given_up(address, size, only_finished);
        if (sync && kind == cachealloc::FreeKind::waits_unnoticed)
            kind = cachealloc::FreeKind::waits_on_host;
        const cachealloc::PoolResult result = pool->free(block, address, kind);
        if (result.status != cachealloc::PoolStatus::done) device.kept(address, size);
        return result;
    }
    /// Stream-ordered calls, for one of the device's streams; its number plus one is its handle, as
    /// its id is unless the fixture's `ids` say otherwise.
    cachealloc::NamedStream named(std::size_t stream) const {
        cachealloc::NamedStream name;
        name.id = ids[stream];
        name.handle = stream + 1;
        name.reuse_finished = reuse_finished;
        name.reuse_waiting = reuse_waiting;
        return name;
    }
    cachealloc::Block* alloc_on(std::size_t stream, std::uint64_t bytes) {
        const cachealloc::PoolResult result = pool->allocate_async(bytes, named(stream));
        status = result.status;
        if (result.status != cachealloc::PoolStatus::done) return nullptr;
        cachealloc::Block* const block = map->find(result.address);
        if (block == nullptr) return nullptr;
        ledger.handed_out(*block);
        device.handed_out_to(stream, block->address, block->size);
        return block;
    }
    cachealloc::PoolResult free_on(std::size_t stream, cachealloc::Block* block) {
        const cachealloc::DeviceAddress address = block->address;
        const std::uint64_t size = block->size;
        device.given_up(address, size, true);
        const cachealloc::PoolResult result = pool->free_async(block, address, named(stream));
        if (result.status != cachealloc::PoolStatus::done) device.kept(address, size);
        return result;
    }
    cachealloc::PoolResult set_aside(cachealloc::Block* block) {
        device.given_up(block->address, block->size, true);
        return pool->set_aside(block, block->address);
    }
    void use(cachealloc::Block* block, std::size_t stream = 0) {
        device.submit(stream, block->address, block->size);
    }
    /// Finishes all work and gives everything back; nothing may be live. Returns bytes still held.
    std::uint64_t wind_up() {
        device.finish_all();
        pool->captures_ended();
        while (pool->fences().poll()) {
        }
        pool->trim();
        return device.held();
    }
    std::string first_complaint() {
        const auto all = device.complaints();
        return all.empty() ? ledger.first_complaint() : all.front();
    }

    cachealloc::PoolStatus status = cachealloc::PoolStatus::done;
    std::array<std::uint64_t, SimulatedDevice::kStreams> ids{1, 2, 3, 4};
    bool reuse_finished = true; ///< what alloc_on() asks for
    bool reuse_waiting = true;
};
