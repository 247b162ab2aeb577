// Memory that kernels can write and the host can read: managed memory, and pinned memory whose
// device address is asked for.
#include "shim/recorded_calls.h"
#include "shim/room.h"

namespace cachealloc::shim {

namespace {

// 0 if the driver does not say.
template <class Value>
Value attribute(CUpointer_attribute which, CUdeviceptr pointer) {
    Value value{};
    if (real.cuPointerGetAttribute(&value, which, pointer) != CUDA_SUCCESS) return {};
    return value;
}

// A variable of a module: managed ones live as long as the module, which is for ever enough.
CUresult variable_found(CUresult result, const CUdeviceptr* pointer) {
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr && state->host_watch.on() &&
        pointer != nullptr && attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, *pointer) != 0) {
        state->host_watch.reachable.managed(*pointer);
    }
    return result;
}

// A pool of managed memory: what is taken from it is not followed one by one.
CUresult pool_found(CUresult result, CUmemAllocationType type) {
    Process* const state = process();
    if (result == CUDA_SUCCESS && type == CU_MEM_ALLOCATION_TYPE_MANAGED && state != nullptr &&
        state->host_watch.on()) {
        state->host_watch.reachable.managed_for_ever();
    }
    return result;
}

template <class Call>
CUresult pinned(trace::CallName name, void* const* host, std::size_t bytes, Call call) {
    const CUresult result = record_alloc(name, bytes, call, [&] {
        MemoryEvent event;
        event.address = reinterpret_cast<std::uintptr_t>(*host);
        event.size = bytes;
        event.memory = trace::MemoryType::pinned;
        return event;
    });
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr && state->host_watch.on()) {
        state->host_watch.reachable.pinned(reinterpret_cast<std::uintptr_t>(*host), bytes);
    }
    return result;
}

template <class Call>
CUresult end(trace::CallName name, const void* host, Call call) {
    Process* const state = process();
    if (state == nullptr) return call();
    const auto address = reinterpret_cast<std::uintptr_t>(host);
    const bool mapped = state->host_watch.reachable.freeing(address);
    const CUresult result = record_free(name, trace::AddressSpace::host, address, call);
    if (mapped && result != CUDA_SUCCESS) state->host_watch.reachable.not_freed(address);
    return result;
}

} // namespace

CUresult hook_cuMemAllocManaged(CUdeviceptr* pointer, std::size_t bytes, unsigned int flags) {
    const CUresult result = record_alloc(
        trace::CallName::mem_alloc_managed, bytes,
        [&] { return with_room([&] { return real.cuMemAllocManaged(pointer, bytes, flags); }); },
        [&] {
            MemoryEvent event;
            event.address = *pointer;
            event.size = bytes;
            event.memory = trace::MemoryType::managed;
            return event;
        });
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr && state->host_watch.on()) {
        state->host_watch.reachable.managed(*pointer);
    }
    return result;
}

CUresult hook_cuLibraryGetManaged(CUdeviceptr* pointer, std::size_t* bytes, CUlibrary library,
                                  const char* name) {
    return variable_found(real.cuLibraryGetManaged(pointer, bytes, library, name), pointer);
}

CUresult hook_cuModuleGetGlobal_v2(CUdeviceptr* pointer, std::size_t* bytes, CUmodule module,
                                   const char* name) {
    return variable_found(real.cuModuleGetGlobal_v2(pointer, bytes, module, name), pointer);
}

CUresult hook_cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                     CUmemAllocationType type) {
    return pool_found(real.cuMemGetDefaultMemPool(pool, location, type), type);
}

CUresult hook_cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                              CUmemAllocationType type) {
    return pool_found(real.cuMemGetMemPool(pool, location, type), type);
}

CUresult hook_cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    const CUresult result = real.cuMemPoolCreate(pool, properties);
    return result == CUDA_SUCCESS ? pool_found(result, properties->allocType) : result;
}

CUresult hook_cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned int flags) {
    const CUresult result = real.cuMemHostGetDevicePointer_v2(device, host, flags);
    Process* const state = process();
    if (result != CUDA_SUCCESS || state == nullptr || !state->host_watch.on()) return result;
    HostReachable& reachable = state->host_watch.reachable;
    const auto address = reinterpret_cast<std::uintptr_t>(host);
    if (const std::uint64_t bytes = reachable.pinned_bytes(address)) {
        reachable.mapped(address, bytes);
        return result;
    }
    const auto base = attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    const auto bytes = attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    reachable.mapped(base != 0 ? base : address, bytes);
    return result;
}

CUresult hook_cuMemHostAlloc(void** host, std::size_t bytes, unsigned int flags) {
    return pinned(trace::CallName::mem_alloc_host, host, bytes,
                  [&] { return real.cuMemHostAlloc(host, bytes, flags); });
}

CUresult hook_cuMemAllocHost_v2(void** host, std::size_t bytes) {
    return pinned(trace::CallName::mem_alloc_host, host, bytes,
                  [&] { return real.cuMemAllocHost_v2(host, bytes); });
}

CUresult hook_cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned int flags) {
    return pinned(trace::CallName::mem_host_register, &host, bytes,
                  [&] { return real.cuMemHostRegister_v2(host, bytes, flags); });
}

CUresult hook_cuMemFreeHost(void* host) {
    return end(trace::CallName::mem_free_host, host, [&] { return real.cuMemFreeHost(host); });
}

CUresult hook_cuMemHostUnregister(void* host) {
    return end(trace::CallName::mem_host_unregister, host,
               [&] { return real.cuMemHostUnregister(host); });
}

} // namespace cachealloc::shim
