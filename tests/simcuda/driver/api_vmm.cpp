// Virtual memory management: reserved addresses, physical memory, mappings, access rights.
// Nothing here waits for device work, as measured.
#include <unistd.h>

#include "guard.h"

using namespace simcuda;

namespace {

struct Physical {
    std::uint64_t serial = 0;
    std::size_t size = 0;
    int device = 0;
    int file = -1;
    std::uintptr_t identity = 0;
    unsigned handles = 1;
    unsigned mappings = 0;
    CUmemAllocationProp prop{};
};

struct Reservation {
    void* pages = nullptr; // as the system gave them, with room for alignment
    std::size_t bytes = 0;
    std::size_t size = 0;
};

World& world() {
    return World::get();
}

std::map<std::uint64_t, Physical>& physicals() {
    static auto* const table = new std::map<std::uint64_t, Physical>;
    return *table;
}
std::map<std::uintptr_t, Reservation>& reservations() {
    static auto* const table = new std::map<std::uintptr_t, Reservation>;
    return *table;
}

void collect(std::uint64_t serial) {
    const auto it = physicals().find(serial);
    if (it != physicals().end() && it->second.handles == 0 && it->second.mappings == 0) {
        world().devices[static_cast<std::size_t>(it->second.device)]->memory.give(it->second.size);
        world().oracle.forget(it->second.identity, it->second.identity + it->second.size);
        close(it->second.file);
        physicals().erase(it);
    }
}

// A device without these functions, by a setting.
bool supported() {
    return world().setting("vmm") != 0;
}

bool whole(std::uint64_t n) {
    return n % kGranule == 0;
}

bool reserved(std::uintptr_t p, std::size_t size) {
    auto it = reservations().upper_bound(p);
    if (it == reservations().begin()) {
        return false;
    }
    --it;
    return p + size <= it->first + it->second.size;
}

// The mappings that make up exactly [p, p + size), or nothing.
std::vector<std::shared_ptr<Allocation>> mappings(std::uintptr_t p, std::size_t size) {
    std::vector<std::shared_ptr<Allocation>> all;
    std::uintptr_t at = p;
    while (at < p + size) {
        const auto a = world().map.at(at);
        if (a == nullptr || a->kind != Memory::mapped || a->end() > p + size) {
            return {};
        }
        all.push_back(a);
        at = a->end();
    }
    return all;
}

} // namespace

SIM_EXPORT CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                                  CUmemAllocationGranularity_flags) {
    SIM_ENTER(cuMemGetAllocationGranularity);
    *granularity = kGranule;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment,
                                        CUdeviceptr, unsigned long long flags) {
    SIM_ENTER(cuMemAddressReserve);
    if (out == nullptr || size == 0 || !whole(size) || flags != 0 ||
        (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!supported()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const std::size_t align = std::max(alignment, kGranule);
    Reservation r;
    r.bytes = size + align;
    r.size = size;
    r.pages = map_pages(r.bytes, false);
    if (r.pages == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = round_up(reinterpret_cast<std::uintptr_t>(r.pages), align);
    reservations()[*out] = r;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
    SIM_ENTER(cuMemAddressFree);
    const auto it = reservations().find(p);
    if (it == reservations().end() || it->second.size != size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto& all = world().map.all();
    const auto inside = all.lower_bound(p);
    if (inside != all.end() && inside->first < p + size) {
        return CUDA_ERROR_INVALID_VALUE; // something is still mapped there
    }
    unmap_pages(it->second.pages, it->second.bytes);
    reservations().erase(it);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t size,
                                const CUmemAllocationProp* prop, unsigned long long flags) {
    SIM_ENTER(cuMemCreate);
    static std::uint64_t next = 0;
    static std::uintptr_t next_identity = std::uintptr_t{1} << 62;
    World& w = world();
    if (out == nullptr || prop == nullptr || size == 0 || !whole(size) || flags != 0 ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->location.id < 0 ||
        static_cast<std::size_t>(prop->location.id) >= w.devices.size()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!supported()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    DeviceMemory& memory = w.devices[static_cast<std::size_t>(prop->location.id)]->memory;
    if (!memory.take(size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Physical p;
    p.file = memory_file(size);
    if (p.file < 0) {
        memory.give(size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    p.serial = ++next;
    p.size = size;
    p.device = prop->location.id;
    p.prop = *prop;
    p.identity = next_identity;
    next_identity += size;
    physicals()[p.serial] = p;
    *out = p.serial;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    SIM_ENTER(cuMemRelease);
    const auto it = physicals().find(handle);
    if (it == physicals().end() || it->second.handles == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    --it->second.handles;
    collect(handle);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* p) {
    SIM_ENTER(cuMemRetainAllocationHandle);
    const auto a = world().map.find(reinterpret_cast<std::uintptr_t>(p));
    if (out == nullptr || a == nullptr || a->kind != Memory::mapped) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ++physicals()[a->physical].handles;
    *out = a->physical;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                           CUmemGenericAllocationHandle handle) {
    SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
    const auto it = physicals().find(handle);
    if (prop == nullptr || it == physicals().end()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = it->second.prop;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags) {
    SIM_ENTER(cuMemMap);
    World& w = world();
    const auto it = physicals().find(handle);
    if (it == physicals().end() || it->second.handles == 0 || size == 0 || !whole(p) ||
        !whole(size) || !whole(offset) || offset + size > it->second.size || flags != 0 ||
        !reserved(p, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (offset != 0 || size != it->second.size) {
        return CUDA_ERROR_NOT_SUPPORTED; // only whole, as measured
    }
    const auto next = w.map.all().lower_bound(p);
    if (w.map.find(p) != nullptr || (next != w.map.all().end() && next->first < p + size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (map_file(reinterpret_cast<void*>(p), size, it->second.file, offset, false) == nullptr) {
        return CUDA_ERROR_MAP_FAILED;
    }
    Allocation a;
    a.base = p;
    a.size = size;
    a.kind = Memory::mapped;
    a.device = it->second.device;
    a.accessible = false;
    a.physical = handle;
    a.identity = it->second.identity;
    a.rdma = it->second.prop.allocFlags.gpuDirectRDMACapable != 0;
    w.map.add(std::move(a));
    ++it->second.mappings;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc* desc,
                                   size_t count) {
    SIM_ENTER(cuMemSetAccess);
    const auto all = mappings(p, size);
    if (all.empty() || desc == nullptr || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto& a : all) {
        for (std::size_t i = 0; i < count; ++i) {
            if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
                a->reached_from.erase(desc[i].location.id);
            } else {
                a->reached_from.insert(desc[i].location.id);
            }
        }
        a->accessible = !a->reached_from.empty();
        set_accessible(reinterpret_cast<void*>(a->base), a->size, a->accessible);
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                   CUdeviceptr p) {
    SIM_ENTER(cuMemGetAccess);
    const auto a = world().map.find(p);
    if (flags == nullptr || location == nullptr || a == nullptr ||
        (a->kind != Memory::mapped && a->kind != Memory::device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // Of plain allocations it says none, as measured.
    *flags = a->reached_from.count(location->id) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
    SIM_ENTER(cuMemUnmap);
    const auto all = mappings(p, size);
    if (all.empty()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto& a : all) {
        check_release(*a, "cuMemUnmap");
        const std::uint64_t serial = a->physical;
        drop_allocation(a);
        --physicals()[serial].mappings;
        collect(serial);
    }
    reserve_again(reinterpret_cast<void*>(p), size);
    return CUDA_SUCCESS;
}
