// The shim's own prototypes and values against cuda.h's. Compiling is the test: every intercepted
// or called function must pass its arguments as the header's function of that name does.
#define __CUDA_API_VERSION_INTERNAL // declares every name as it is, without renaming macros
#include <cuda.h>

#include "shim/cuda_types.h"

#include <cstddef>
#include <cstdio>
#include <type_traits>

namespace cachealloc::shim {
namespace {

// Arguments of one class and size travel alike: pointers, or integers and enumerations.
template <class A, class B>
constexpr bool same_argument =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
    (std::is_integral_v<A> || std::is_enum_v<A>) ==
        (std::is_integral_v<B> ||
         std::is_enum_v<B>)&&std::is_floating_point_v<A> == std::is_floating_point_v<B>;

template <class A, class B>
struct SameAbi : std::false_type {};

template <class RA, class... A, class RB, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameAbi<RA(A...), RB(B...)>
    : std::bool_constant<same_argument<RA, RB> && (same_argument<A, B> && ...)> {
};

// The checks must be able to fail.
static_assert(SameAbi<int(void*, unsigned), CUresult(char*, CUdevice)>::value);
static_assert(!SameAbi<int(void*), CUresult(std::size_t)>::value);
static_assert(!SameAbi<int(unsigned), CUresult(std::size_t)>::value);
static_assert(!SameAbi<int(int), CUresult(int, int)>::value);

// Older headers lack some of the names.
#if CUDA_VERSION >= 13000
#define PASS(name, kind, stream)
#define CALL(name, kind, stream, params)                                                           \
    static_assert(SameAbi<CUresult params, decltype(::name)>::value, #name);
#define HOOK(name, kind, stream, params, args) CALL(name, kind, stream, params)
#define SUBMIT(name, kind, stream)
#include "shim/entry_points.def"
#undef SUBMIT
#undef PASS
#undef CALL
#undef HOOK
#endif

#define SAME(name) static_assert(static_cast<int>(name) == static_cast<int>(::name))
SAME(CUDA_SUCCESS);
SAME(CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_ERROR_DEINITIALIZED);
SAME(CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_ERROR_ILLEGAL_STATE);
SAME(CUDA_ERROR_NOT_FOUND);
SAME(CUDA_ERROR_NOT_READY);
SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CUDA_ERROR_LAUNCH_FAILED);
SAME(CUDA_ERROR_NOT_PERMITTED);
SAME(CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
SAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(CUDA_ERROR_UNKNOWN);
SAME(CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
SAME(CU_POINTER_ATTRIBUTE_HOST_POINTER);
SAME(CU_POINTER_ATTRIBUTE_P2P_TOKENS);
SAME(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
SAME(CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(CU_POINTER_ATTRIBUTE_MAPPED);
SAME(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
SAME(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE);
SAME(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
SAME(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME(CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
SAME(CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
SAME(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
SAME(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
SAME(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME(CU_MEMPOOL_ATTR_USED_MEM_HIGH);
SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME(CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME(CU_GET_PROC_ADDRESS_SUCCESS);
SAME(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
SAME(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
SAME(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT);
#if CUDA_VERSION >= 13000
SAME(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT);
SAME(CU_MEM_ALLOCATION_TYPE_MANAGED);
static_assert(offsetof(::CUmemPoolProps, allocType) == 0);
#endif
static_assert(sizeof(CUDA_MEMCPY2D) == sizeof(::CUDA_MEMCPY2D));
static_assert(offsetof(CUDA_MEMCPY2D, dstMemoryType) == offsetof(::CUDA_MEMCPY2D, dstMemoryType));
static_assert(offsetof(CUDA_MEMCPY2D, dstHost) == offsetof(::CUDA_MEMCPY2D, dstHost));
static_assert(offsetof(CUDA_MEMCPY2D, dstDevice) == offsetof(::CUDA_MEMCPY2D, dstDevice));
static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(::CUDA_MEMCPY3D));
static_assert(offsetof(CUDA_MEMCPY3D, dstMemoryType) == offsetof(::CUDA_MEMCPY3D, dstMemoryType));
static_assert(offsetof(CUDA_MEMCPY3D, dstHost) == offsetof(::CUDA_MEMCPY3D, dstHost));
static_assert(offsetof(CUDA_MEMCPY3D, dstDevice) == offsetof(::CUDA_MEMCPY3D, dstDevice));
static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(::CUDA_MEMCPY3D_PEER));
static_assert(offsetof(::CUDA_MEMCPY3D, dstDevice) == offsetof(::CUDA_MEMCPY3D_PEER, dstDevice));
static_assert(offsetof(::CUDA_MEMCPY3D, dstMemoryType) ==
              offsetof(::CUDA_MEMCPY3D_PEER, dstMemoryType));
static_assert(sizeof(CUipcEventHandle) == sizeof(::CUipcEventHandle));
SAME(CU_MEMORYTYPE_HOST);
SAME(CU_MEMORYTYPE_DEVICE);
SAME(CU_MEMORYTYPE_ARRAY);
SAME(CU_MEMORYTYPE_UNIFIED);
SAME(CU_GRAPH_NODE_TYPE_KERNEL);
SAME(CU_GRAPH_NODE_TYPE_MEMCPY);
SAME(CU_GRAPH_NODE_TYPE_MEMSET);
SAME(CU_GRAPH_NODE_TYPE_HOST);
SAME(CU_GRAPH_NODE_TYPE_GRAPH);
SAME(CU_GRAPH_NODE_TYPE_EMPTY);
SAME(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
SAME(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
SAME(CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL);
SAME(CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
SAME(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME(CU_GRAPH_NODE_TYPE_MEM_FREE);

static_assert(sizeof(CUlaunchAttribute) == sizeof(::CUlaunchAttribute));
static_assert(offsetof(CUlaunchAttribute, value) == offsetof(::CUlaunchAttribute, value));
static_assert(sizeof(CUlaunchConfig) == sizeof(::CUlaunchConfig));
static_assert(offsetof(CUlaunchConfig, hStream) == offsetof(::CUlaunchConfig, hStream));
static_assert(offsetof(CUlaunchConfig, attrs) == offsetof(::CUlaunchConfig, attrs));
static_assert(offsetof(CUlaunchConfig, numAttrs) == offsetof(::CUlaunchConfig, numAttrs));
static_assert(sizeof(CUmemLocation) == sizeof(::CUmemLocation));
static_assert(sizeof(CUmemAllocationProp) == sizeof(::CUmemAllocationProp));
static_assert(offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable) ==
              offsetof(::CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(CUmemAccessDesc) == sizeof(::CUmemAccessDesc));
static_assert(offsetof(CUmemAccessDesc, flags) == offsetof(::CUmemAccessDesc, flags));
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(sizeof(CUipcMemHandle) == sizeof(::CUipcMemHandle));
static_assert(std::is_same_v<CUdeviceptr, ::CUdeviceptr>);
static_assert(std::is_same_v<CUdevice, ::CUdevice>);

} // namespace
} // namespace cachealloc::shim

int main() {
    const bool streams =
        cachealloc::shim::kStreamLegacy == static_cast<void*>(CU_STREAM_LEGACY) &&
        cachealloc::shim::kStreamPerThread == static_cast<void*>(CU_STREAM_PER_THREAD);
    std::printf("compared with the headers of CUDA %d\n", CUDA_VERSION);
    return streams ? 0 : 1;
}
