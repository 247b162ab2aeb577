#include "shim/vmm_source.h"

#include "shim/driver.h"

#include <catch2/catch.hpp>

#include <map>
#include <set>

namespace cachealloc::shim {
constinit RealDriver real{};
}

using namespace cachealloc;
using namespace cachealloc::shim;

namespace {

// What the driver has: just enough to count what is left and to refuse what the real one refuses.
struct Driver {
    struct Memory {
        std::uint64_t bytes;
        unsigned handles;
        unsigned mappings;
    };
    struct Mapping {
        std::uint64_t bytes;
        CUmemGenericAllocationHandle handle;
        std::set<int> devices;
    };
    std::map<std::uint64_t, Memory> memory;
    std::map<CUdeviceptr, Mapping> mappings;
    std::map<CUdeviceptr, std::uint64_t> reserved;
    std::uint64_t next_address = 64 * kGranule;
    std::uint64_t next_handle = 1;
    std::uint64_t room = 1000 * kGranule;
    bool supported = true;
    std::uint64_t fail_at = 0; // the n-th call
    std::uint64_t calls = 0;
    std::uint64_t access_calls = 0;
    CUresult error = CUDA_ERROR_UNKNOWN;

    bool fails() { return ++calls == fail_at; }
    std::uint64_t used() const {
        std::uint64_t sum = 0;
        for (const auto& [handle, one] : memory)
            sum += one.bytes;
        return sum;
    }
    void collect(std::uint64_t handle) {
        const auto one = memory.find(handle);
        if (one->second.handles == 0 && one->second.mappings == 0) memory.erase(one);
    }
};
Driver* g_driver = nullptr;

CUresult get_current(CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(16);
    return CUDA_SUCCESS;
}
CUresult get_attribute(int* value, CUdevice_attribute, CUdevice) {
    *value = g_driver->supported ? 1 : 0;
    return CUDA_SUCCESS;
}
CUresult granularity(std::size_t* bytes, const CUmemAllocationProp*,
                     CUmemAllocationGranularity_flags) {
    *bytes = kGranule;
    return CUDA_SUCCESS;
}
CUresult exchange_mode(CUstreamCaptureMode*) {
    return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                 unsigned long long) {
    if (g_driver->fails()) return g_driver->error;
    *address = g_driver->next_address;
    g_driver->next_address += bytes + kGranule;
    g_driver->reserved[*address] = bytes;
    return CUDA_SUCCESS;
}
CUresult address_free(CUdeviceptr address, std::size_t bytes) {
    if (g_driver->fails()) return g_driver->error;
    REQUIRE(g_driver->reserved.at(address) == bytes);
    const auto inside = g_driver->mappings.lower_bound(address);
    REQUIRE((inside == g_driver->mappings.end() || inside->first >= address + bytes));
    g_driver->reserved.erase(address);
    return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long) {
    if (g_driver->fails()) return g_driver->error;
    REQUIRE(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    REQUIRE(properties->allocFlags.gpuDirectRDMACapable <= 1);
    if (bytes > g_driver->room - g_driver->used()) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = g_driver->next_handle++;
    g_driver->memory[*handle] = {bytes, 1, 0};
    return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
    if (g_driver->fails()) return g_driver->error;
    REQUIRE(g_driver->memory.at(handle).handles == 1);
    --g_driver->memory.at(handle).handles;
    g_driver->collect(handle);
    return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long) {
    if (g_driver->fails()) return g_driver->error;
    REQUIRE(offset == 0);
    REQUIRE(g_driver->memory.at(handle).bytes == bytes);
    const auto above = g_driver->mappings.lower_bound(address);
    REQUIRE((above == g_driver->mappings.end() || above->first >= address + bytes));
    g_driver->mappings[address] = {bytes, handle, {}};
    ++g_driver->memory.at(handle).mappings;
    return CUDA_SUCCESS;
}
template <class Visit>
void each_mapping(CUdeviceptr address, std::size_t bytes, Visit visit) {
    for (CUdeviceptr at = address; at < address + bytes;) {
        const auto one = g_driver->mappings.find(at);
        REQUIRE(one != g_driver->mappings.end());
        at += one->second.bytes;
        REQUIRE(at <= address + bytes);
        visit(one);
    }
}
CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                    std::size_t count) {
    ++g_driver->access_calls;
    if (g_driver->fails()) return g_driver->error;
    each_mapping(address, bytes, [&](auto mapping) {
        for (std::size_t i = 0; i < count; ++i) {
            if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                mapping->second.devices.erase(access[i].location.id);
            else
                mapping->second.devices.insert(access[i].location.id);
        }
    });
    return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr address, std::size_t bytes) {
    if (g_driver->fails()) return g_driver->error;
    each_mapping(address, bytes, [](auto) {});
    each_mapping(address, bytes, [](auto mapping) {
        const auto handle = mapping->second.handle;
        --g_driver->memory.at(handle).mappings;
        g_driver->mappings.erase(mapping);
        g_driver->collect(handle);
    });
    return CUDA_SUCCESS;
}

struct Scene {
    Driver driver;
    PeerAccess peers;
    MappingCalls calls{};
    VmmSource source{reinterpret_cast<CUcontext>(16), 0, peers, calls};

    Scene() {
        g_driver = &driver;
        real.cuCtxGetCurrent.set(reinterpret_cast<void*>(get_current));
        real.cuDeviceGetAttribute.set(reinterpret_cast<void*>(get_attribute));
        real.cuMemGetAllocationGranularity.set(reinterpret_cast<void*>(granularity));
        real.cuThreadExchangeStreamCaptureMode.set(reinterpret_cast<void*>(exchange_mode));
        real.cuMemAddressReserve.set(reinterpret_cast<void*>(reserve));
        real.cuMemAddressFree.set(reinterpret_cast<void*>(address_free));
        real.cuMemCreate.set(reinterpret_cast<void*>(create));
        real.cuMemRelease.set(reinterpret_cast<void*>(release));
        real.cuMemMap.set(reinterpret_cast<void*>(map));
        real.cuMemSetAccess.set(reinterpret_cast<void*>(set_access));
        real.cuMemUnmap.set(reinterpret_cast<void*>(unmap));
    }
    void check_all_given_back() const {
        CHECK(driver.memory.empty());
        CHECK(driver.mappings.empty());
        CHECK(driver.reserved.empty());
    }
    bool reachable(CUdeviceptr address, int device) const {
        return driver.mappings.at(address).devices.count(device) != 0;
    }
};

} // namespace

TEST_CASE("VmmSource: pieces are created, mapped and made reachable in one call, and go back") {
    Scene scene;
    const SourceResult range = scene.source.reserve(64 * kGranule);
    REQUIRE(range.status == SourceStatus::done);
    REQUIRE(scene.source.map(range.address, 8 * kGranule, 2 * kGranule).status ==
            SourceStatus::done);
    REQUIRE(scene.source.map(range.address + 8 * kGranule, kGranule, kGranule).status ==
            SourceStatus::done);
    CHECK(scene.driver.access_calls == 2);
    CHECK(scene.driver.used() == 9 * kGranule);
    CHECK(scene.source.reserves(range.address + 63 * kGranule, 1));
    CHECK_FALSE(scene.source.reserves(range.address + 64 * kGranule, 1));
    std::uint64_t pieces = 0;
    scene.source.for_each_piece(range.address, 9 * kGranule,
                                [&](DeviceAddress, std::uint64_t) { ++pieces; });
    CHECK(pieces == 5);

    CHECK(scene.source.unmap(range.address + kGranule, 2 * kGranule).status ==
          SourceStatus::failed); // halves of pieces
    CHECK(scene.source.unmap(range.address + 6 * kGranule, 3 * kGranule).status ==
          SourceStatus::done);
    CHECK(scene.driver.used() == 6 * kGranule);
    CHECK(scene.source.map(range.address + 6 * kGranule, kGranule, kGranule).status ==
          SourceStatus::done);
    CHECK(scene.source.unmap(range.address, 7 * kGranule).status == SourceStatus::done);
    scene.source.unreserve(range.address, 64 * kGranule);
    scene.check_all_given_back();
}

TEST_CASE("VmmSource: a second mapping of scattered pieces") {
    Scene scene;
    const SourceResult range = scene.source.reserve(64 * kGranule);
    REQUIRE(scene.source.map(range.address, 8 * kGranule, 2 * kGranule).status ==
            SourceStatus::done);
    const PieceRun runs[] = {{range.address + 4 * kGranule, 4 * kGranule},
                             {range.address, 2 * kGranule}};
    const SourceResult alias = scene.source.alias(runs, 2);
    REQUIRE(alias.status == SourceStatus::done);
    CHECK(scene.source.reserves(alias.address + 5 * kGranule, 1));
    CHECK(scene.driver.used() == 8 * kGranule); // no memory of its own
    CHECK(scene.driver.mappings.at(alias.address + 4 * kGranule).handle ==
          scene.driver.mappings.at(range.address).handle);
    CHECK(scene.reachable(alias.address + 4 * kGranule, 0));
    const PieceRun half{range.address + kGranule, kGranule};
    CHECK(scene.source.alias(&half, 1).status == SourceStatus::failed);
    CHECK(scene.source.drop_alias(alias.address, kGranule).status == SourceStatus::failed);
    CHECK(scene.source.drop_alias(alias.address, 6 * kGranule).status == SourceStatus::done);
    CHECK_FALSE(scene.source.reserves(alias.address, 1));
    CHECK(scene.driver.mappings.size() == 4);
}

TEST_CASE("VmmSource: peers reach what is mapped before and after, until that is taken away") {
    Scene scene;
    auto* const other = reinterpret_cast<CUcontext>(32);
    auto* const mine = reinterpret_cast<CUcontext>(16);
    const SourceResult range = scene.source.reserve(64 * kGranule);
    scene.source.map(range.address, 2 * kGranule, kGranule);
    scene.source.map(range.address + 4 * kGranule, kGranule, kGranule);
    const PieceRun run{range.address, kGranule};
    const SourceResult alias = scene.source.alias(&run, 1);
    scene.peers.enabled(other, 1, mine);
    REQUIRE(scene.source.set_access(1, true) == CUDA_SUCCESS);
    scene.source.map(range.address + 2 * kGranule, kGranule, kGranule);
    CHECK(scene.driver.mappings.size() == 5);
    for (const auto& [address, mapping] : scene.driver.mappings) {
        CHECK(mapping.devices == std::set<int>{0, 1});
    }
    REQUIRE(scene.peers.disabled(other, 1, mine));
    REQUIRE(scene.source.set_access(1, false) == CUDA_SUCCESS);
    CHECK_FALSE(scene.reachable(range.address + 4 * kGranule, 1));
    CHECK_FALSE(scene.reachable(alias.address, 1));
    CHECK(scene.reachable(alias.address, 0));
}

TEST_CASE("VmmSource: no room midway leaves nothing behind") {
    Scene scene;
    const SourceResult range = scene.source.reserve(64 * kGranule);
    scene.driver.room = 10 * kGranule;
    REQUIRE(scene.source.map(range.address, 4 * kGranule, kGranule).status == SourceStatus::done);
    const SourceResult more =
        scene.source.map(range.address + 4 * kGranule, 8 * kGranule, kGranule);
    CHECK(more.status == SourceStatus::out_of_memory);
    CHECK(more.native == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(scene.driver.used() == 4 * kGranule);
    CHECK(scene.driver.mappings.size() == 4);
    CHECK(scene.source.map(range.address + 4 * kGranule, 6 * kGranule, kGranule).status ==
          SourceStatus::done);
}

TEST_CASE("VmmSource: a device without growable memory") {
    Scene scene;
    scene.driver.supported = false;
    CHECK(scene.source.reserve(64 * kGranule).status == SourceStatus::failed);
    CHECK(scene.driver.calls == 0);
}

TEST_CASE("VmmSource: what it had when its context ended goes back") {
    Scene scene;
    const SourceResult range = scene.source.reserve(64 * kGranule);
    scene.source.map(range.address, 4 * kGranule, 2 * kGranule);
    scene.source.map(range.address + 6 * kGranule, kGranule, kGranule);
    const PieceRun run{range.address, 2 * kGranule};
    scene.source.alias(&run, 1);
    scene.source.context_ended();
    scene.check_all_given_back();
}

// Each call of the run fails once: whatever it was, no memory is left in the end, none is given
// back twice (the driver above would say so), and what was refused works when asked again.
TEST_CASE("VmmSource: any call of the driver may fail") {
    const CUresult error = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
    std::uint64_t calls = 0;
    for (std::uint64_t nth = 0; nth <= calls; ++nth) {
        INFO("call " << nth << " fails with " << error);
        Scene scene;
        scene.driver.fail_at = nth;
        scene.driver.error = error;
        SourceResult range = scene.source.reserve(64 * kGranule);
        if (range.status != SourceStatus::done) range = scene.source.reserve(64 * kGranule);
        REQUIRE(range.status == SourceStatus::done);
        const auto twice = [](auto call) {
            SourceResult result = call();
            if (result.status != SourceStatus::done) result = call();
            REQUIRE(result.status == SourceStatus::done);
            return result.address;
        };
        const auto map = [&](std::uint64_t from, std::uint64_t count) {
            twice([&] {
                return scene.source.map(range.address + from * kGranule, count * kGranule,
                                        kGranule);
            });
        };
        map(0, 3);
        map(3, 2);
        const PieceRun runs[] = {{range.address + 3 * kGranule, kGranule},
                                 {range.address, kGranule}};
        const DeviceAddress alias = twice([&] { return scene.source.alias(runs, 2); });
        twice([&] { return scene.source.alias(runs, 1); });
        if (scene.source.set_access(1, true) != CUDA_SUCCESS) {
            for (const auto& [address, mapping] : scene.driver.mappings)
                CHECK(mapping.devices.count(1) == 0);
        }
        twice([&] { return scene.source.drop_alias(alias, 2 * kGranule); });
        twice([&] { return scene.source.unmap(range.address + kGranule, 2 * kGranule); });
        map(1, 1);
        CHECK(scene.driver.used() == 4 * kGranule);
        scene.source.context_ended();
        scene.check_all_given_back();
        if (nth == 0) calls = scene.driver.calls;
    }
    CHECK(calls > 40);
}
