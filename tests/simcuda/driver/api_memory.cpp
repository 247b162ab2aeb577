// Allocation that names no stream: device, managed and pinned memory.
#include "guard.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

CUresult allocate_device(std::uintptr_t* p, std::size_t bytes) {
    World& w = world();
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    SIM_TRY(forbid_while_capturing(true));
    if (p == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pass_free_gate(ctx);
    const std::uintptr_t base =
        w.devices[static_cast<std::size_t>(ctx->device)]->memory.allocate(bytes);
    if (base == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Allocation a;
    a.base = base;
    a.size = bytes;
    a.device = ctx->device;
    a.ctx = owner_of(ctx);
    w.map.add(std::move(a));
    *p = base;
    return CUDA_SUCCESS;
}

CUresult free_device(std::uintptr_t p) {
    World& w = world();
    if (self().current() != nullptr) {
        // As measured, a free needs no current context, but a dead one is refused.
        ContextPtr ctx;
        SIM_TRY(current_context(&ctx));
    }
    SIM_TRY(forbid_while_capturing(true));
    if (p == 0) {
        return CUDA_SUCCESS;
    }
    auto a = w.map.at(p);
    if (a == nullptr || a->freeing ||
        (a->kind != Memory::device && a->kind != Memory::managed && a->kind != Memory::pool)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (a->kind != Memory::pool) {
        // As measured: a pointer of the stream-ordered calls is freed without any wait.
        wait_as_free(a->ctx);
        SIM_TRY(a->ctx->fault());
        if (w.map.at(p) != a) {
            return CUDA_ERROR_INVALID_VALUE; // another thread freed it meanwhile
        }
    }
    check_release(*a, "cuMemFree");
    drop_allocation(a);
    return CUDA_SUCCESS;
}

CUresult allocate_host(void** p, std::size_t bytes, unsigned flags, Memory kind) {
    World& w = world();
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    SIM_TRY(forbid_while_capturing(true));
    if (p == nullptr || (bytes == 0 && kind == Memory::managed)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes == 0) {
        *p = nullptr;
        return CUDA_SUCCESS;
    }
    pass_free_gate(ctx);
    void* pages = map_pages(round_up(bytes, kGranule), true);
    if (pages == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Allocation a;
    a.base = reinterpret_cast<std::uintptr_t>(pages);
    a.size = bytes;
    a.kind = kind;
    a.device = ctx->device;
    a.ctx = owner_of(ctx);
    a.flags = flags;
    w.map.add(std::move(a));
    *p = pages;
    return CUDA_SUCCESS;
}

CUresult free_host(void* p, Memory kind, CUresult unknown) {
    SIM_TRY(forbid_while_capturing(false));
    if (p == nullptr) {
        return kind == Memory::pinned ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    const auto a = world().map.at(reinterpret_cast<std::uintptr_t>(p));
    if (a == nullptr || a->kind != kind) {
        return unknown;
    }
    wait_as_free(a->ctx);
    SIM_TRY(a->ctx->fault());
    check_release(*a, kind == Memory::pinned ? "cuMemFreeHost" : "cuMemHostUnregister");
    drop_allocation(a);
    return CUDA_SUCCESS;
}

// A copy of the old 32-bit interface exists for its address alone: no pointer of this process fits.
CUresult old_interface() {
    return CUDA_ERROR_NOT_SUPPORTED;
}

} // namespace

SIM_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1*, unsigned int) {
    SIM_ENTER(cuMemAlloc);
    return old_interface();
}
SIM_EXPORT CUresult cuMemFree(CUdeviceptr_v1) {
    SIM_ENTER(cuMemFree);
    return old_interface();
}
SIM_EXPORT CUresult cuMemGetInfo(unsigned int*, unsigned int*) {
    SIM_ENTER(cuMemGetInfo);
    return old_interface();
}
SIM_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr_v1*, unsigned int*, CUdeviceptr_v1) {
    SIM_ENTER(cuMemGetAddressRange);
    return old_interface();
}

SIM_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
    SIM_ENTER(cuMemAlloc_v2);
    std::uintptr_t base = 0;
    SIM_TRY(allocate_device(p == nullptr ? nullptr : &base, bytes));
    *p = base;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* p, size_t* pitch, size_t width, size_t height,
                                       unsigned int element) {
    SIM_ENTER(cuMemAllocPitch_v2);
    if (p == nullptr || pitch == nullptr || (element != 4 && element != 8 && element != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::size_t row = round_up(width, kAlignment);
    std::uintptr_t base = 0;
    SIM_TRY(allocate_device(&base, row * height));
    *p = base;
    *pitch = row;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
    SIM_ENTER(cuMemFree_v2);
    return free_device(p);
}

SIM_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    SIM_ENTER(cuMemGetInfo_v2);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    const DeviceMemory& memory =
        World::get().devices[static_cast<std::size_t>(ctx->device)]->memory;
    if (free != nullptr) {
        *free = memory.limit() - std::min(memory.limit(), memory.used());
    }
    if (total != nullptr) {
        *total = memory.limit();
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr p) {
    SIM_ENTER(cuMemGetAddressRange_v2);
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    const auto a = known_allocation(p);
    if (a == nullptr) {
        if (base != nullptr) {
            *base = 0;
        }
        if (size != nullptr) {
            *size = 0;
        }
        return CUDA_ERROR_NOT_FOUND;
    }
    if (base != nullptr) {
        *base = a->base;
    }
    if (size != nullptr) {
        *size = a->size;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* p, size_t bytes, unsigned int flags) {
    SIM_ENTER(cuMemAllocManaged);
    if (p == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void* pages = nullptr;
    SIM_TRY(allocate_host(&pages, bytes, flags, Memory::managed));
    *p = reinterpret_cast<std::uintptr_t>(pages);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemHostAlloc(void** p, size_t bytes, unsigned int flags) {
    SIM_ENTER(cuMemHostAlloc);
    return allocate_host(p, bytes, flags, Memory::pinned);
}
SIM_EXPORT CUresult cuMemAllocHost(void**, unsigned int) {
    SIM_ENTER(cuMemAllocHost);
    return old_interface();
}
SIM_EXPORT CUresult cuMemAllocHost_v2(void** p, size_t bytes) {
    SIM_ENTER(cuMemAllocHost_v2);
    return allocate_host(p, bytes, 0, Memory::pinned);
}
SIM_EXPORT CUresult cuMemFreeHost(void* p) {
    SIM_ENTER(cuMemFreeHost);
    return free_host(p, Memory::pinned, CUDA_ERROR_INVALID_VALUE);
}
SIM_EXPORT CUresult cuMemHostUnregister(void* p) {
    SIM_ENTER(cuMemHostUnregister);
    return free_host(p, Memory::registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static CUresult register_host(void* p, size_t bytes, unsigned flags) {
    World& w = World::get();
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    SIM_TRY(forbid_while_capturing(true));
    const auto base = reinterpret_cast<std::uintptr_t>(p);
    if (p == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto& all = w.map.all();
    const auto next = all.lower_bound(base);
    if (w.map.find(base) != nullptr || (next != all.end() && next->first < base + bytes)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    pass_free_gate(ctx);
    Allocation a;
    a.base = base;
    a.size = bytes;
    a.kind = Memory::registered;
    a.device = ctx->device;
    a.ctx = owner_of(ctx);
    a.flags = flags;
    w.map.add(std::move(a));
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemHostRegister(void* p, size_t bytes, unsigned int flags) {
    SIM_ENTER(cuMemHostRegister);
    return register_host(p, bytes, flags);
}
SIM_EXPORT CUresult cuMemHostRegister_v2(void* p, size_t bytes, unsigned int flags) {
    SIM_ENTER(cuMemHostRegister_v2);
    return register_host(p, bytes, flags);
}

SIM_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1*, void*, unsigned int) {
    SIM_ENTER(cuMemHostGetDevicePointer);
    return old_interface();
}
SIM_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned int flags) {
    SIM_ENTER(cuMemHostGetDevicePointer_v2);
    const auto a = World::get().map.find(reinterpret_cast<std::uintptr_t>(p));
    if (out == nullptr || flags != 0 || a == nullptr || !a->on_host()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = reinterpret_cast<std::uintptr_t>(p);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemHostGetFlags(unsigned int* flags, void* p) {
    SIM_ENTER(cuMemHostGetFlags);
    const auto a = World::get().map.find(reinterpret_cast<std::uintptr_t>(p));
    if (flags == nullptr || a == nullptr || a->kind != Memory::pinned) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = a->flags;
    return CUDA_SUCCESS;
}
