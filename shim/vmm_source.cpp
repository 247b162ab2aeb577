#include "shim/vmm_source.h"

#include "core/pool/host_pages.h"
#include "shim/current_context.h"
#include "shim/driver_time.h"
#include "shim/log.h"
#include "shim/relaxed_capture.h"

#include <cstdio>
#include <new>

namespace cachealloc::shim {

namespace {

constexpr std::size_t kMostDevices = 64;

CUmemAccessDesc access_of(CUdevice device, bool allowed) {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, device},
            allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
}

bool attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    return real.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value != 0;
}

// Bracket of every call here: none may hurt a capture that another thread has open.
class VmmCall {
  public:
    VmmCall(std::mutex& mutex, CUcontext context) : lock_(mutex), context_(context) {}

  private:
    const std::lock_guard<std::mutex> lock_;
    const CurrentContext context_;
    const RelaxedCapture relaxed_;
};

} // namespace

bool VmmSource::usable() {
    if (support_ != Support::unknown) return support_ == Support::present;
    support_ = Support::none;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    std::size_t granularity = 0;
    if (!real.cuMemAddressReserve || !real.cuMemAddressFree || !real.cuMemCreate ||
        !real.cuMemRelease || !real.cuMemMap || !real.cuMemUnmap || !real.cuMemSetAccess ||
        !real.cuMemGetAllocationGranularity ||
        !attribute(device_, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        real.cuMemGetAllocationGranularity(&granularity, &properties,
                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        granularity == 0 || kGranule % granularity != 0) {
        return false;
    }
    rdma_ = attribute(device_, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    support_ = Support::present;
    return true;
}

SourceResult VmmSource::refused(const char* what, CUresult result) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return {SourceStatus::out_of_memory, 0, static_cast<int>(result)};
    trouble_error_ = result;
    trouble_.store(what, std::memory_order_release);
    return {SourceStatus::failed, 0, static_cast<int>(result)};
}

void VmmSource::explain() const {
    const char* const what = trouble_.load(std::memory_order_acquire);
    if (what == nullptr || !log_enabled(LogLevel::warning)) return;
    char line[160];
    std::snprintf(line, sizeof(line),
                  "expandable_segments:True: %s failed on device %d (error %d): memory does not "
                  "grow there, the pool goes on with cuMemAlloc",
                  what, device_, static_cast<int>(trouble_error_));
    log_once("no-growable-memory", LogLevel::warning, line);
}

const VmmSource::Range* VmmSource::range_of(DeviceAddress address, std::uint64_t bytes) const {
    for (const Range* range = ranges_; range != nullptr; range = range->next) {
        if (range->contains(address, bytes)) return range;
    }
    return nullptr;
}

bool VmmSource::whole(const Range& range, DeviceAddress address, std::uint64_t bytes) const {
    DeviceAddress at = address;
    while (at < address + bytes) {
        const std::uint64_t piece = range.piece_at(at).bytes;
        if (piece == 0) return false;
        at += piece;
    }
    return at == address + bytes;
}

bool VmmSource::reserves(DeviceAddress address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto overlaps = [&](DeviceAddress base, std::uint64_t size) {
        return address < base + size && base < address + bytes;
    };
    for (const Range* range = ranges_; range != nullptr; range = range->next) {
        if (overlaps(range->base, range->bytes)) return true;
    }
    for (const Alias* alias = aliases_; alias != nullptr; alias = alias->next) {
        if (overlaps(alias->base, alias->bytes)) return true;
    }
    return false;
}

// --- What the driver did not take back ----------------------------------------------------------

bool VmmSource::finish(Leftover& leftover) {
    if (leftover.mapped_bytes != 0) {
        if (real.cuMemUnmap(leftover.mapped, leftover.mapped_bytes) != CUDA_SUCCESS) return false;
        leftover.mapped_bytes = 0;
    }
    if (leftover.has_handle) {
        if (real.cuMemRelease(leftover.handle) != CUDA_SUCCESS) return false;
        leftover.has_handle = false;
    }
    if (leftover.reserved_bytes != 0) {
        if (still_mapped(leftover.reserved, leftover.reserved_bytes)) return false;
        if (real.cuMemAddressFree(leftover.reserved, leftover.reserved_bytes) != CUDA_SUCCESS)
            return false;
        leftover.reserved_bytes = 0;
    }
    return true;
}

void VmmSource::give_back(Leftover leftover) {
    if (finish(leftover)) return;
    Leftover** last = &leftovers_;
    while (*last != nullptr)
        last = &(*last)->next;
    *last = new (std::nothrow) Leftover(leftover);
}

bool VmmSource::give_back_leftovers() {
    const VmmCall call(mutex_, context_);
    const bool any = leftovers_ != nullptr;
    tidy();
    return any && leftovers_ == nullptr;
}

void VmmSource::tidy() {
    for (Leftover** link = &leftovers_; *link != nullptr;) {
        Leftover* const leftover = *link;
        if (finish(*leftover)) {
            *link = leftover->next;
            delete leftover;
        } else {
            link = &leftover->next;
        }
    }
}

bool VmmSource::still_mapped(DeviceAddress address, std::uint64_t bytes) const {
    for (const Leftover* one = leftovers_; one != nullptr; one = one->next) {
        if (one->mapped < address + bytes && address < one->mapped + one->mapped_bytes) return true;
    }
    return false;
}

// --- Ranges -------------------------------------------------------------------------------------

SourceResult VmmSource::reserve(std::uint64_t bytes) {
    const VmmCall call(mutex_, context_);
    if (!usable()) {
        return refused("mapping memory into reserved addresses", CUDA_ERROR_NOT_SUPPORTED);
    }
    CUdeviceptr base = 0;
    const CUresult result = real.cuMemAddressReserve(&base, bytes, kGranule, 0, 0);
    if (result != CUDA_SUCCESS) {
        refused("cuMemAddressReserve", result);
        return {SourceStatus::failed, 0, static_cast<int>(result)}; // more memory is no help
    }
    auto* const range = new (std::nothrow) Range{base, bytes, nullptr, ranges_};
    if (range != nullptr) {
        range->pieces = static_cast<Piece*>(map_host_pages(range->table_bytes()));
        if (range->pieces != nullptr) {
            ranges_ = range;
            trouble_.store(nullptr, std::memory_order_relaxed);
            return {SourceStatus::done, base, 0};
        }
        delete range;
    }
    give_back({0, 0, 0, false, base, bytes, nullptr});
    return {SourceStatus::failed, 0, 0};
}

void VmmSource::unreserve(DeviceAddress address, std::uint64_t bytes) {
    const VmmCall call(mutex_, context_);
    tidy();
    for (Range** link = &ranges_; *link != nullptr; link = &(*link)->next) {
        Range* const range = *link;
        if (range->base != address || range->bytes != bytes) continue;
        *link = range->next;
        unmap_host_pages(range->pieces, range->table_bytes());
        delete range;
        give_back({0, 0, 0, false, address, bytes, nullptr});
        return;
    }
}

CUresult VmmSource::create(std::uint64_t bytes, CUmemGenericAllocationHandle& handle) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    properties.allocFlags.gpuDirectRDMACapable = rdma_ ? 1 : 0;
    const CUresult result = real.cuMemCreate(&handle, bytes, &properties, 0);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY || !rdma_) return result;
    rdma_ = false; // said to be there, and refused
    properties.allocFlags.gpuDirectRDMACapable = 0;
    return real.cuMemCreate(&handle, bytes, &properties, 0);
}

// One call for all devices and pieces.
CUresult VmmSource::allow(DeviceAddress address, std::uint64_t bytes) {
    CUdevice devices[kMostDevices];
    const std::size_t peers = peers_.reaching(context_, devices, kMostDevices - 1);
    CUmemAccessDesc access[kMostDevices];
    std::size_t count = 0;
    access[count++] = access_of(device_, true);
    for (std::size_t i = 0; i < peers; ++i) {
        if (devices[i] != device_) access[count++] = access_of(devices[i], true);
    }
    return real.cuMemSetAccess(address, bytes, access, count);
}

SourceResult VmmSource::map(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece) {
    const VmmCall call(mutex_, context_);
    const DriverTime time(calls_.map_ns);
    calls_.map.fetch_add(1, std::memory_order_relaxed);
    tidy();
    const Range* const range = range_of(address, bytes);
    if (range == nullptr || piece == 0 || still_mapped(address, bytes))
        return {SourceStatus::failed, 0, 0};
    const char* what = "cuMemCreate";
    CUresult result = CUDA_SUCCESS;
    std::uint64_t done = 0;
    while (done < bytes) {
        CUmemGenericAllocationHandle handle = 0;
        what = "cuMemCreate";
        result = create(piece, handle);
        if (result != CUDA_SUCCESS) break;
        what = "cuMemMap";
        result = real.cuMemMap(address + done, piece, 0, handle, 0);
        if (result != CUDA_SUCCESS) {
            give_back({0, 0, handle, true, 0, 0, nullptr});
            break;
        }
        range->piece_at(address + done) = {handle, piece};
        done += piece;
    }
    if (result == CUDA_SUCCESS) {
        what = "cuMemSetAccess";
        result = allow(address, bytes);
    }
    if (result == CUDA_SUCCESS) return {};
    // In one call as long as the driver does not mind.
    const bool unmapped = done == 0 || real.cuMemUnmap(address, done) == CUDA_SUCCESS;
    for (std::uint64_t at = 0; at < done; at += piece) {
        Piece& made = range->piece_at(address + at);
        give_back({address + at, unmapped ? 0 : piece, made.handle, true, 0, 0, nullptr});
        made = {};
    }
    return refused(what, result);
}

void VmmSource::forget_pieces(const Range& range, DeviceAddress address, std::uint64_t bytes) {
    for (DeviceAddress at = address; at < address + bytes;) {
        Piece& piece = range.piece_at(at);
        at += piece.bytes;
        give_back({0, 0, piece.handle, true, 0, 0, nullptr});
        piece = {};
    }
}

SourceResult VmmSource::unmap(DeviceAddress address, std::uint64_t bytes) {
    const VmmCall call(mutex_, context_);
    const DriverTime time(calls_.unmap_ns);
    calls_.unmap.fetch_add(1, std::memory_order_relaxed);
    tidy();
    const Range* const range = range_of(address, bytes);
    if (range == nullptr || !whole(*range, address, bytes)) return {SourceStatus::failed, 0, 0};
    const CUresult result = real.cuMemUnmap(address, bytes);
    if (result != CUDA_SUCCESS) return {SourceStatus::failed, 0, static_cast<int>(result)};
    forget_pieces(*range, address, bytes);
    return {};
}

// --- Second mappings ----------------------------------------------------------------------------

CUresult VmmSource::map_second(DeviceAddress at, const Range& range, const PieceRun& run,
                               std::uint64_t& done) {
    for (DeviceAddress from = run.address; from < run.address + run.bytes;) {
        const Piece& piece = range.piece_at(from);
        const CUresult result = real.cuMemMap(at + done, piece.bytes, 0, piece.handle, 0);
        if (result != CUDA_SUCCESS) return result;
        from += piece.bytes;
        done += piece.bytes;
    }
    return CUDA_SUCCESS;
}

SourceResult VmmSource::alias(const PieceRun* runs, std::uint32_t count) {
    const VmmCall call(mutex_, context_);
    const DriverTime time(calls_.map_ns);
    calls_.map.fetch_add(1, std::memory_order_relaxed);
    tidy();
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const Range* const range = range_of(runs[i].address, runs[i].bytes);
        if (range == nullptr || !whole(*range, runs[i].address, runs[i].bytes))
            return {SourceStatus::failed, 0, 0};
        bytes += runs[i].bytes;
    }
    auto* const made = new (std::nothrow) Alias{0, bytes, nullptr};
    if (made == nullptr || bytes == 0) {
        delete made;
        return {SourceStatus::failed, 0, 0};
    }
    CUdeviceptr base = 0;
    CUresult result = real.cuMemAddressReserve(&base, bytes, kGranule, 0, 0);
    if (result != CUDA_SUCCESS) {
        delete made;
        return {SourceStatus::out_of_memory, 0, static_cast<int>(result)};
    }
    std::uint64_t done = 0;
    for (std::uint32_t i = 0; i < count && result == CUDA_SUCCESS; ++i)
        result = map_second(base, *range_of(runs[i].address, runs[i].bytes), runs[i], done);
    if (result == CUDA_SUCCESS) result = allow(base, bytes);
    if (result != CUDA_SUCCESS) {
        give_back({base, done, 0, false, base, bytes, nullptr});
        delete made;
        return {result == CUDA_ERROR_OUT_OF_MEMORY ? SourceStatus::out_of_memory
                                                   : SourceStatus::failed,
                0, static_cast<int>(result)};
    }
    made->base = base;
    made->next = aliases_;
    aliases_ = made;
    return {SourceStatus::done, base, 0};
}

SourceResult VmmSource::drop_alias(DeviceAddress address, std::uint64_t bytes) {
    const VmmCall call(mutex_, context_);
    const DriverTime time(calls_.unmap_ns);
    calls_.unmap.fetch_add(1, std::memory_order_relaxed);
    tidy();
    for (Alias** link = &aliases_; *link != nullptr; link = &(*link)->next) {
        Alias* const alias = *link;
        if (alias->base != address || alias->bytes != bytes) continue;
        const CUresult result = real.cuMemUnmap(address, bytes);
        if (result != CUDA_SUCCESS) return {SourceStatus::failed, 0, static_cast<int>(result)};
        *link = alias->next;
        delete alias;
        give_back({0, 0, 0, false, address, bytes, nullptr});
        return {};
    }
    return {SourceStatus::failed, 0, 0};
}

// --- All that is mapped -------------------------------------------------------------------------

// apply(address, bytes) for stretches without a hole, until one fails.
template <class Apply>
CUresult VmmSource::for_each_mapping(Apply apply) {
    for (const Range* range = ranges_; range != nullptr; range = range->next) {
        DeviceAddress begin = range->base;
        for (DeviceAddress at = begin; at <= range->base + range->bytes;) {
            const bool mapped = at < range->base + range->bytes && range->piece_at(at).bytes != 0;
            if (mapped) {
                at += range->piece_at(at).bytes;
                continue;
            }
            if (at != begin) {
                const CUresult result = apply(begin, at - begin);
                if (result != CUDA_SUCCESS) return result;
            }
            at += kGranule;
            begin = at;
        }
    }
    for (const Alias* alias = aliases_; alias != nullptr; alias = alias->next) {
        const CUresult result = apply(alias->base, alias->bytes);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult VmmSource::set_access(CUdevice device, bool allowed) {
    const VmmCall call(mutex_, context_);
    if (device == device_) return CUDA_SUCCESS;
    const auto set = [&](bool value) {
        const CUmemAccessDesc access = access_of(device, value);
        return for_each_mapping([&](DeviceAddress address, std::uint64_t bytes) {
            return real.cuMemSetAccess(address, bytes, &access, 1);
        });
    };
    const CUresult result = set(allowed);
    if (result != CUDA_SUCCESS && allowed) set(false);
    return result;
}

void VmmSource::context_ended() {
    const std::lock_guard lock(mutex_);
    while (aliases_ != nullptr) {
        Alias* const alias = aliases_;
        aliases_ = alias->next;
        give_back({alias->base, alias->bytes, 0, false, alias->base, alias->bytes, nullptr});
        delete alias;
    }
    while (ranges_ != nullptr) {
        Range* const range = ranges_;
        ranges_ = range->next;
        for (std::uint64_t at = 0; at < range->bytes;) {
            const Piece piece = range->piece_at(range->base + at);
            if (piece.bytes != 0)
                give_back({range->base + at, piece.bytes, piece.handle, true, 0, 0, nullptr});
            at += piece.bytes != 0 ? piece.bytes : kGranule;
        }
        unmap_host_pages(range->pieces, range->table_bytes());
        give_back({0, 0, 0, false, range->base, range->bytes, nullptr});
        delete range;
    }
    tidy();
}

} // namespace cachealloc::shim
