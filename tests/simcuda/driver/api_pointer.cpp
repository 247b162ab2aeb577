// What a pointer is: cuPointerGetAttribute(s), advice and prefetching.
#include "guard.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

template <class T>
void put(void* data, T value) {
    *static_cast<T*>(data) = value;
}

CUresult attribute(void* data, CUpointer_attribute what, const Allocation& a, CUdeviceptr p) {
    switch (what) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        put<CUcontext>(data, a.kind == Memory::pool || a.kind == Memory::mapped ? nullptr
                                                                                : a.ctx->handle);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        put<CUmemorytype>(data, a.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        put<CUdeviceptr>(data, p);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!a.on_host() && a.kind != Memory::managed) {
            put<void*>(data, nullptr);
            return CUDA_ERROR_INVALID_VALUE;
        }
        put<void*>(data, reinterpret_cast<void*>(p));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        put<int>(data, 0);
        return a.kind == Memory::mapped ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        put<unsigned long long>(data, a.buffer_id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        put<int>(data, a.kind == Memory::managed ? 1 : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put<int>(data, a.device);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        put<int>(data, a.kind == Memory::device ? 1 : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        put<CUdeviceptr>(data, a.base);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        put<std::size_t>(data, a.size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put<int>(data, a.accessible ? 1 : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        put<unsigned long long>(data, 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        put<int>(data, a.kind == Memory::device || a.rdma ? 1 : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        put<CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        put<CUmemoryPool>(data, a.pool == nullptr ? nullptr : a.pool->handle);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        put<std::size_t>(data, round_up(a.size, kGranule));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        put<CUdeviceptr>(data, a.base / kGranule * kGranule);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        put<unsigned long long>(data, a.buffer_id);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

// What the plural call says about a pointer that CUDA does not know: nothing, successfully.
void unknown(void* data, CUpointer_attribute what) {
    switch (what) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        put<int>(data, 0);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put<int>(data, -2); // CU_DEVICE_INVALID
        break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        break;
    default:
        put<std::uint64_t>(data, 0);
    }
}

CUresult advise(CUdeviceptr p, std::size_t bytes) {
    const auto a = world().map.find(p);
    return a != nullptr && a->kind == Memory::managed && world().map.covers(p, bytes)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult prefetch(bool pt, CUdeviceptr p, std::size_t bytes, CUstream stream) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    SIM_TRY(advise(p, bytes));
    Work work;
    work.label = "cuMemPrefetchAsync";
    return submit(s, std::move(work));
}

} // namespace

SIM_EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute what, CUdeviceptr p) {
    SIM_ENTER_STATE(cuPointerGetAttribute);
    const auto a = known_allocation(p);
    if (data == nullptr || a == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return attribute(data, what, *a, p);
}

SIM_EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* what,
                                           void** data, CUdeviceptr p) {
    SIM_ENTER_STATE(cuPointerGetAttributes);
    if (what == nullptr || data == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto a = known_allocation(p);
    for (unsigned i = 0; i < count; ++i) {
        if (a == nullptr || attribute(data[i], what[i], *a, p) != CUDA_SUCCESS) {
            unknown(data[i], what[i]);
        }
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute what,
                                          CUdeviceptr p) {
    SIM_ENTER(cuPointerSetAttribute);
    const auto a = world().map.find(p);
    if (value != nullptr && what == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && a != nullptr &&
        a->kind == Memory::mapped) {
        return CUDA_ERROR_NOT_SUPPORTED; // as measured
    }
    return value != nullptr && what == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && a != nullptr
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise, CUdevice) {
    SIM_ENTER(cuMemAdvise);
    return advise(p, bytes);
}
SIM_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr p, size_t bytes, CUmem_advise, CUmemLocation) {
    SIM_ENTER(cuMemAdvise_v2);
    return advise(p, bytes);
}
SIM_TWINS(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz, prefetch,
          (CUdeviceptr p, size_t n, CUdevice, CUstream s), p, n, s)
SIM_TWINS(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz, prefetch,
          (CUdeviceptr p, size_t n, CUmemLocation, unsigned int, CUstream s), p, n, s)
