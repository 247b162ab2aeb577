// Physical memory and its mappings: the program's own, recorded so that JAX's and PyTorch's
// expandable segments show up.
//
// Both the table and the recording are brought up to date before the driver is asked to give
// anything back, since handle and address may be another thread's at once; a refusal undoes it.
//
// The pool's own mappings are no business of the program's, which was told of plain allocations: a
// call on an address of theirs gets what it would get for one (measured on an H200).
#include "shim/pooled.h"
#include "shim/recorded_calls.h"
#include "shim/room.h"

namespace cachealloc::shim {

namespace {

bool pool_reserves(CUdeviceptr address, std::size_t bytes) {
    Process* const state = process();
    return state != nullptr && is_growable(*state, address, bytes);
}

} // namespace

CUresult hook_cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
    if (pool_reserves(address, bytes)) return bad_pointer();
    return real.cuMemAddressFree(address, bytes);
}

CUresult hook_cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                             std::size_t count) {
    if (pool_reserves(address, bytes)) return bad_pointer();
    return real.cuMemSetAccess(address, bytes, access, count);
}

CUresult hook_cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                             CUdeviceptr address) {
    if (!pool_reserves(address, 1)) return real.cuMemGetAccess(flags, location, address);
    if (flags == nullptr || location == nullptr || owner_of(*process(), address).live == nullptr) {
        return bad_pointer();
    }
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                          const CUmemAllocationProp* properties, unsigned long long flags) {
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    const RecordedCall bracket(recorder, trace::CallName::mem_create);
    const CUresult result =
        with_room([&] { return real.cuMemCreate(handle, bytes, properties, flags); });
    if (recorder == nullptr) return result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) state->recording.out_of_memory(bytes);
    if (result != CUDA_SUCCESS || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return result; // memory of the host's is not recorded
    }
    MemoryEvent event;
    event.address = *handle;
    event.size = bytes;
    event.memory = trace::MemoryType::physical;
    state->recording.virtual_memory.created(*handle);
    record_passed(*state, event, properties->location.id);
    return result;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    if (pool_reserves(reinterpret_cast<CUdeviceptr>(address), 1)) return bad_pointer();
    const CUresult result = real.cuMemRetainAllocationHandle(handle, address);
    Process* const state = process();
    if (result == CUDA_SUCCESS && recorder_of(state) != nullptr) {
        state->recording.virtual_memory.retained(*handle);
    }
    return result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    if (recorder == nullptr) return real.cuMemRelease(handle);
    const RecordedCall bracket(recorder, trace::CallName::mem_release, with_free_stack(state));
    VirtualMemory& memory = state->recording.virtual_memory;
    if (!memory.released(handle)) return real.cuMemRelease(handle);
    PassedFree freed(recorder, trace::AddressSpace::physical, handle);
    const CUresult result = freed.done(real.cuMemRelease(handle));
    if (result != CUDA_SUCCESS) memory.created(handle);
    return result;
}

CUresult hook_cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
    if (pool_reserves(address, bytes)) return bad_pointer();
    return record_alloc(
        trace::CallName::mem_map, bytes,
        [&] { return real.cuMemMap(address, bytes, offset, handle, flags); },
        [&] {
            process()->recording.virtual_memory.mapped(address, bytes, handle);
            MemoryEvent event;
            event.address = address;
            event.size = bytes;
            event.memory = trace::MemoryType::mapping;
            return event;
        });
}

// One call may end several mappings, and with them memory whose handle was released before.
CUresult hook_cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
    if (pool_reserves(address, bytes)) return bad_pointer();
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    if (recorder == nullptr) return real.cuMemUnmap(address, bytes);
    const RecordedCall bracket(recorder, trace::CallName::mem_unmap, with_free_stack(state));
    VirtualMemory& memory = state->recording.virtual_memory;
    const VirtualMemory::Ended ended = memory.unmapped(address, bytes);
    std::vector<PassedFree> freed;
    for (const VirtualMemory::Mapping& mapping : ended.mappings)
        freed.emplace_back(recorder, trace::AddressSpace::mapping, mapping.address);
    for (const std::uint64_t handle : ended.handles)
        freed.emplace_back(recorder, trace::AddressSpace::physical, handle);
    const CUresult result = real.cuMemUnmap(address, bytes);
    for (PassedFree& one : freed)
        one.done(result);
    if (result != CUDA_SUCCESS) memory.restore(ended);
    return result;
}

} // namespace cachealloc::shim
