// Arrays and pitched memory: the driver's own layouts, recorded with the bytes that their elements
// take.
#include "shim/recorded_calls.h"
#include "shim/room.h"

#include <algorithm>

namespace cachealloc::shim {

namespace {

// Bytes of one channel. Formats of graphics count as one byte, which is right or too little.
std::uint64_t channel_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 1;
    }
}

std::uint64_t at_least_one(std::size_t extent) {
    return std::max<std::uint64_t>(extent, 1);
}

// Each level has half the extents of the one before; layers stay.
std::uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR* array, unsigned int levels) {
    if (array == nullptr || (array->Flags & (kArraySparse | kArrayDeferred)) != 0) return 0;
    const std::uint64_t element = channel_bytes(array->Format) * array->NumChannels;
    const bool layered = (array->Flags & kArrayLayered) != 0;
    std::uint64_t bytes = 0;
    for (unsigned int level = 0; level < std::min(levels, 32U); ++level) {
        bytes += element * at_least_one(array->Width >> level) *
                 at_least_one(array->Height >> level) *
                 at_least_one(layered ? array->Depth : array->Depth >> level);
    }
    return bytes;
}

std::uint64_t bytes_of(const CUDA_ARRAY_DESCRIPTOR* array) {
    if (array == nullptr) return 0;
    return channel_bytes(array->Format) * array->NumChannels * at_least_one(array->Width) *
           at_least_one(array->Height);
}

MemoryEvent event_of(const void* handle, std::uint64_t bytes) {
    MemoryEvent event;
    event.address = reinterpret_cast<std::uintptr_t>(handle);
    event.size = bytes;
    event.memory = trace::MemoryType::array;
    return event;
}

template <class Handle, class Call>
CUresult create(Handle* array, std::uint64_t bytes, Call call) {
    return record_alloc(
        trace::CallName::array_create, bytes, [&] { return with_room(call); },
        [&] { return event_of(*array, bytes); });
}

template <class Call>
CUresult destroy(const void* handle, Call call) {
    return record_free(trace::CallName::array_destroy, trace::AddressSpace::array,
                       reinterpret_cast<std::uintptr_t>(handle), call);
}

} // namespace

CUresult hook_cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
    return create(array, bytes_of(descriptor),
                  [&] { return real.cuArrayCreate_v2(array, descriptor); });
}

CUresult hook_cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
    return create(array, bytes_of(descriptor, 1),
                  [&] { return real.cuArray3DCreate_v2(array, descriptor); });
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray* array,
                                     const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                     unsigned int levels) {
    return create(array, bytes_of(descriptor, levels),
                  [&] { return real.cuMipmappedArrayCreate(array, descriptor, levels); });
}

CUresult hook_cuArrayDestroy(CUarray array) {
    return destroy(array, [&] { return real.cuArrayDestroy(array); });
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return destroy(array, [&] { return real.cuMipmappedArrayDestroy(array); });
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                                 std::size_t height, unsigned int element) {
    return record_alloc(
        trace::CallName::mem_alloc_pitch, width * height,
        [&] {
            return with_room(
                [&] { return real.cuMemAllocPitch_v2(pointer, pitch, width, height, element); });
        },
        [&] {
            MemoryEvent event;
            event.address = *pointer;
            event.size = *pitch * height;
            event.memory = trace::MemoryType::pitched;
            return event;
        });
}

} // namespace cachealloc::shim
